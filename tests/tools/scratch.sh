# Sourced: an empty project in a temporary directory with the tools of this one.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
mkdir -p src/base src/quant src/kernels apps
cp -r "$MOEFLUX_SOURCE/tools" .
status=0

# expect STATUS TEXT COMMAND...: it ends with that status (0, or anything else) and prints TEXT.
expect()
{
    wanted=$1 text=$2
    shift 2
    printed=$("$@" 2>&1)
    got=$?
    [ $got -eq 0 ] || got=1
    case $printed in *"$text"*) found=1 ;; *) found=0 ;; esac
    if [ $got -ne "$wanted" ] || [ $found -eq 0 ]; then
        echo "expected status $wanted and \"$text\", got status $got and:"
        echo "$printed"
        status=1
    fi
}

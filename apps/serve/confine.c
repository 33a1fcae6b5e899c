#include "serve/confine.h"

#include "common/basics.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ------------------------------------------------------------------ Landlock */

/* As the kernel has it from the fourth version on; older headers know the first member only. */
struct ruleset {
    uint64_t files, network;
};

#define ACCESS_TRUNCATE    (UINT64_C(1) << 14) /* third version */
#define ACCESS_CONNECT_TCP (UINT64_C(1) << 1)  /* of the network; fourth version */
#define ACCESS_READ        (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define ACCESS_WRITE                                                                               \
    (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |   \
     LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR)
#define ACCESS_NEVER                                                                               \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_SOCK |    \
     LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM)

/* What the C library and the engine read: locale, host names, CPU and memory. */
static const char *const system_paths[] = { "/etc",  "/usr", "/lib", "/lib64",
                                            "/proc", "/sys", "/dev" };

/* A path that is not there needs no rule. */
static void allow(int ruleset, const char *path, uint64_t access)
{
    struct stat found;
    int descriptor = path ? open(path, O_PATH | O_CLOEXEC) : -1;
    struct landlock_path_beneath_attr rule = { .allowed_access = access, .parent_fd = descriptor };

    if (descriptor < 0) return;
    if (fstat(descriptor, &found) == 0 && !S_ISDIR(found.st_mode))
        rule.allowed_access &= LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE;
    syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    close(descriptor);
}

/* A directory, and what links in it lead to: the Hugging Face cache keeps files elsewhere. */
static void allow_reading(int ruleset, const char *path)
{
    char name[PATH_CAPACITY];
    DIR *directory = path ? opendir(path) : NULL;
    const struct dirent *entry;

    allow(ruleset, path, ACCESS_READ);
    if (!directory) return;
    while ((entry = readdir(directory))) {
        if (entry->d_type != DT_LNK) continue;
        if ((size_t)snprintf(name, sizeof name, "%s/%s", path, entry->d_name) < sizeof name)
            allow(ruleset, name, ACCESS_READ);
    }
    closedir(directory);
}

static void allow_devices(int ruleset, const char *prefix)
{
    char path[PATH_CAPACITY];
    DIR *directory = prefix ? opendir("/dev") : NULL;
    const struct dirent *entry;

    if (!directory) return;
    while ((entry = readdir(directory))) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
        snprintf(path, sizeof path, "/dev/%s", entry->d_name);
        allow(ruleset, path, ACCESS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE);
    }
    closedir(directory);
}

static bool confine_files(const struct confine_paths *paths)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    struct ruleset wanted = { .files = ACCESS_READ | ACCESS_WRITE | ACCESS_NEVER };
    uint64_t write = ACCESS_READ | ACCESS_WRITE;

    if (version < 1) return false;
    if (version >= 2) write |= LANDLOCK_ACCESS_FS_REFER;
    if (version >= 3) write |= ACCESS_TRUNCATE;
    if (version >= 4) wanted.network = ACCESS_CONNECT_TCP;
    wanted.files |= write;
    size_t size = version >= 4 ? sizeof wanted : sizeof wanted.files;
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &wanted, size, 0);
    if (ruleset < 0) return false;
    for (size_t i = 0; i < COUNT_OF(system_paths); i++)
        allow(ruleset, system_paths[i], ACCESS_READ);
    allow(ruleset, "/dev/null", LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE);
    allow_devices(ruleset, paths->devices);
    for (size_t i = 0; i < CONFINE_PATHS_MAX; i++) {
        allow_reading(ruleset, paths->readable[i]);
        allow(ruleset, paths->writable[i], write);
    }
    bool done = syscall(SYS_landlock_restrict_self, ruleset, 0) == 0;
    close(ruleset);
    return done;
}

/* ------------------------------------------------------------------- seccomp */

#if defined(__x86_64__)
#define OWN_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#ifdef OWN_ARCHITECTURE
#define LOAD(field)                                                                                \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, field))
/* Call number `number` fails with EPERM. */
#define REFUSE(number)                                                                             \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1),                                           \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

static bool confine_calls(void)
{
    static struct sock_filter rules[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCHITECTURE, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        LOAD(nr),
        REFUSE(SYS_execve),
        REFUSE(SYS_execveat),
#ifndef __SANITIZE_ADDRESS__ /* LeakSanitizer stops the other threads with it */
        REFUSE(SYS_ptrace),
#endif
        REFUSE(SYS_process_vm_readv),
        REFUSE(SYS_process_vm_writev),
        REFUSE(SYS_mount),
        REFUSE(SYS_umount2),
        REFUSE(SYS_pivot_root),
        REFUSE(SYS_chroot),
        REFUSE(SYS_unshare),
        REFUSE(SYS_setns),
        REFUSE(SYS_bpf),
        REFUSE(SYS_userfaultfd),
        REFUSE(SYS_kexec_load),
        REFUSE(SYS_init_module),
        REFUSE(SYS_finit_module),
        REFUSE(SYS_keyctl),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { COUNT_OF(rules), rules };

    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}
#else
static bool confine_calls(void)
{
    return false;
}
#endif

mf_status confine(char *done, size_t capacity, const struct confine_paths *paths, mf_error *why)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return fail_errno(why, MF_ERR_UNSUPPORTED, errno, "no_new_privs cannot be set");
    bool files = confine_files(paths), calls = confine_calls();
    snprintf(done, capacity, "no_new_privs%s%s", calls ? ", seccomp" : "",
             files ? ", Landlock" : "");
    return MF_OK;
}

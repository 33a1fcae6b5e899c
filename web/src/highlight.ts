/* Colours for code, from what most languages share: comments, strings, numbers, words. */

const words = new Set(`abstract and as assert async await break case catch class const constexpr continue
  def default defer del delete do elif else end enum except export extends extern false final finally fn
  for from func function global goto go if impl implements import in include inline interface is lambda
  let local loop match mod module mut namespace new nil none not null None True False or package pass
  private protected pub public raise return self select sizeof static struct super switch template this
  throw trait true try type typedef typeof union unless until use using var virtual void volatile when
  where while with yield int char float double long short unsigned signed bool string size_t auto echo
  then fi done esac SELECT FROM WHERE INSERT INTO UPDATE DELETE CREATE TABLE JOIN ON GROUP BY ORDER`
  .split(/\s+/));
const hashComments = /^(py|python|sh|bash|zsh|shell|console|ruby|rb|perl|pl|yaml|yml|toml|ini|make|makefile|r|cmake|dockerfile|nix|elixir|conf)$/;
const dashComments = /^(sql|lua|haskell|hs|ada|elm)$/;
const plain = /^(|text|txt|plain|plaintext|output|log|markdown|md)$/;

function pattern(language: string): RegExp {
  const comment = hashComments.test(language) ? '#[^\\n]*'
    : dashComments.test(language) ? '--[^\\n]*'
    : '\\/\\/[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)|<!--[^]*?(?:-->|$)';
  const string = '"""[^]*?(?:"""|$)|"(?:[^"\\\\\\n]|\\\\.)*"?|\'(?:[^\'\\\\\\n]|\\\\.)*\'|`(?:[^`\\\\]|\\\\.)*`?';
  return new RegExp(`(${comment})|(${string})|(\\b(?:0x[\\da-fA-F_]+|\\d[\\d_.]*(?:e[+-]?\\d+)?)\\b)|([A-Za-z_]\\w*)`, 'g');
}

/** Adds `code` to `parent` as text, with spans round what has a colour. */
export function highlight(parent: Node, code: string, language: string): void {
  const name = language.toLowerCase();
  if (plain.test(name) || code.length > 60000) {
    parent.appendChild(document.createTextNode(code));
    return;
  }
  let end = 0;
  const add = (text: string, kind: string | null): void => {
    if (!text) return;
    if (!kind) { parent.appendChild(document.createTextNode(text)); return; }
    const span = document.createElement('span');
    span.className = `code-${kind}`;
    span.textContent = text;
    parent.appendChild(span);
  };
  for (const match of code.matchAll(pattern(name))) {
    const kind = match[1] ? 'comment' : match[2] ? 'string' : match[3] ? 'number'
      : words.has(match[0]) ? 'keyword' : code[match.index + match[0].length] === '(' ? 'call' : null;
    if (!kind) continue;
    add(code.slice(end, match.index), null);
    add(match[0], kind);
    end = match.index + match[0].length;
  }
  add(code.slice(end), null);
}

//! Values that look like credentials, found in the raw text: also in comments, beside broken syntax, and in values
//! that the parser refuses. They are reported by their key and shown nowhere.

use crate::finding::Span;

/// A value that looks like a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// Its key, where it has one.
    pub key: Option<Span>,
    /// The bytes that nobody may see.
    pub value: Span,
}

/// Every credential-like value of `text`, in order.
pub fn secrets(text: &str) -> Vec<Secret> {
    let mut found: Vec<Secret> = Vec::new();
    let mut lines = lines(text).peekable();
    let armoured = text.contains("-----BEGIN");
    while let Some((start, line)) = lines.next() {
        if armoured && line.contains("-----BEGIN") {
            // A key in armour: everything to its end.
            let mut end = start + line.len();
            while let Some((start, next)) = lines.next_if(|(_, next)| !next.contains("-----END")) {
                end = start + next.len();
            }
            found.push(Secret { key: None, value: start + line.len() - line.trim_start().len()..end });
            continue;
        }
        // Most lines hold neither a telling name nor a telling value, and end here.
        let named = might_be_secret(line);
        if !named && !might_hold_secret(line) {
            continue;
        }
        let line_keys: Vec<Span> = keys(line).collect();
        let from_keys = found.len();
        for key in &line_keys {
            let key = key.clone();
            let name = line[key.clone()].trim_matches(['"', '\'']);
            if !might_be_secret(name) || !is_secret_name(name) {
                continue;
            }
            let after = key.end + line[key.end..].find(':').map_or(0, |i| i + 1);
            let value = value(line, after);
            let shown = start + key.start..start + key.end;
            let written = line[value.clone()].trim_start_matches('!').trim();
            if matches!(written.chars().next(), None | Some('|' | '>')) {
                // A list or a block below its key.
                let indent = indentation(line);
                let mut below = None::<Span>;
                while let Some((start, next)) = lines.next_if(|(_, next)| {
                    next.trim().is_empty()
                        || indentation(next) > indent
                        || (written.is_empty() && next.get(indent..).is_some_and(|rest| rest.starts_with("- ")))
                }) {
                    let from = start + indentation(next);
                    below = Some(below.map_or(from, |span| span.start)..start + next.len());
                    // Fields below the key belong to a mapping, which is no value.
                    if written.is_empty() && !next.trim_start().starts_with('-') {
                        below = None;
                        break;
                    }
                }
                found.extend(below.map(|value| Secret { key: Some(shown), value }));
            } else if let Some(end) = unclosed(&line[value.clone()], &text[start + value.start..]) {
                found.push(Secret { key: Some(shown), value: start + value.start..start + value.start + end });
            } else if !is_placeholder(written) && (is_password(name) || written.parse::<f64>().is_err()) {
                found.push(Secret { key: Some(shown), value: start + value.start..start + value.end });
            }
        }
        let by_key = found[from_keys..].to_vec();
        let mut before = 0..0;
        for word in words_of(line) {
            let text = &line[word.clone()];
            let bearer = line[before.clone()].trim_start_matches(|c: char| !c.is_alphanumeric()) == "Bearer"
                && text.len() >= 8
                && !is_placeholder(text);
            let from = if bearer { before.start } else { word.start };
            before = word.clone();
            for part in if bearer { std::iter::once(0..word.end - from).collect() } else { secret_parts(text) } {
                let value = start + from + part.start..start + from + part.end;
                // Values of keys come in order, and are the only ones that a word can lie in.
                let behind = by_key[..].partition_point(|secret: &Secret| secret.value.start <= value.start);
                if behind == 0 || by_key[behind - 1].value.end < value.end {
                    let key = line_keys.partition_point(|key| key.end <= from).checked_sub(1).map(|i| line_keys[i].clone()).filter(|key| {
                        let between = line[key.end..from].trim_matches([':', ' ', '"', '\'']);
                        between.is_empty()
                    });
                    found.push(Secret { key: key.map(|key| start + key.start..start + key.end), value });
                }
            }
        }
    }
    found.sort_by_key(|secret| secret.value.start);
    found
}

/// Where a quoted value ends that goes on behind its line: at its closing quote, or nowhere.
fn unclosed(value: &str, text: &str) -> Option<usize> {
    let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let closed = value.len() > 1 && value.ends_with(quote);
    (!closed).then(|| text[1..].find(quote).map_or(text.len(), |i| i + 2))
}

/// `text` without the secrets in it.
pub fn redact(text: &str) -> String {
    let mut shown = text.to_owned();
    for secret in secrets(text).iter().rev() {
        if shown.is_char_boundary(secret.value.start) && shown.is_char_boundary(secret.value.end.min(shown.len())) {
            shown.replace_range(secret.value.start..secret.value.end.min(shown.len()), "***");
        }
    }
    shown
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |start, line| {
        let here = *start;
        *start += line.len();
        Some((here, line.trim_end_matches(['\n', '\r'])))
    })
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Keys of a line: first in it, behind `- `, `# `, `{` or `,`, and before `:`.
fn keys(line: &str) -> impl Iterator<Item = Span> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < line.len() {
            let start = at + line[at..].len() - line[at..].trim_start_matches([' ', '\t', '-', '#', '{', ',', '[', '?']).len();
            let rest = &line[start..];
            let end = rest.find([':', ',', '{', '}', '[', ']', ' ', '=']).map_or(line.len(), |i| start + i);
            at = if end > at { end } else { line.len() };
            let colon = line[end..].trim_start_matches(' ').starts_with(':');
            // The next key begins behind a separator.
            let next = line[at..].find([',', '{']).map_or(line.len(), |i| at + i);
            at = next;
            if colon && end > start {
                return Some(start..end);
            }
        }
        None
    })
}

/// The value that begins at `at`: quoted, in brackets, or plain to the end of the line or flow item.
fn value(line: &str, at: usize) -> Span {
    let start = at + line[at..].len() - line[at..].trim_start().len();
    let rest = &line[start..];
    let end = match rest.chars().next() {
        Some(quote @ ('"' | '\'')) => rest[1..].find(quote).map_or(rest.len(), |i| i + 2),
        Some('[') => rest.find(']').map_or(rest.len(), |i| i + 1),
        _ => {
            let comment = rest.find(" #").unwrap_or(rest.len());
            let flow = if line.trim_start().trim_start_matches("- ").starts_with('{') || line[..at].contains('{') {
                rest.find([',', '}'])
            } else {
                None
            };
            comment.min(flow.unwrap_or(rest.len()))
        }
    };
    start..start + rest[..end].trim_end().len()
}

/// Runs of characters that a value without blanks may have.
fn words_of(line: &str) -> impl Iterator<Item = Span> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let blank = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '[' | ']' | '{' | '}');
        let start = at + line[at..].find(|c| !blank(c))?;
        let end = line[start..].find(blank).map_or(line.len(), |i| start + i);
        at = end;
        Some(start..end)
    })
}

/// How well-known tokens begin, and how long they are at least.
const PREFIXES: [(&str, usize); 12] = [
    ("hf_", 20),
    ("sk-", 20),
    ("ghp_", 20),
    ("gho_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("nvapi-", 20),
];

/// The parts of a word that are secret by their form.
fn secret_parts(word: &str) -> Vec<Span> {
    let mut parts = Vec::new();
    let bytes = word.as_bytes();
    for start in (0..bytes.len()).filter(|i| *i == 0 || !bytes[i - 1].is_ascii_alphanumeric()) {
        let Some((prefix, length)) = PREFIXES.iter().find(|(prefix, _)| bytes[start..].starts_with(prefix.as_bytes())) else { continue };
        let end =
            bytes[start..].iter().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))).map_or(word.len(), |i| start + i);
        let body = &bytes[(start + prefix.len()).min(end)..end];
        if end - start >= *length && body.iter().any(|b| b.is_ascii_digit() || b.is_ascii_uppercase()) {
            parts.push(start..end);
        }
    }
    if let Some(scheme) = word.find("://") {
        let authority = scheme + 3;
        let end = word[authority..].find(['/', '?', '#']).map_or(word.len(), |i| authority + i);
        if let Some(at) = word[authority..end].rfind('@')
            && let Some(colon) = word[authority..authority + at].find(':')
            && !is_placeholder(&word[authority + colon + 1..authority + at])
        {
            parts.push(authority..authority + at);
        }
    }
    // `--token=value`, and what stands in an address's query.
    let first = word.len() - word.trim_start_matches('-').len();
    for at in std::iter::once(first).chain(word.match_indices(['?', '&', '#']).map(|(at, _)| at + 1)) {
        let rest = &word[at..];
        let end = rest.find(['&', '#']).unwrap_or(rest.len());
        if let Some((name, value)) = rest[..end].split_once('=')
            && might_be_secret(name)
            && is_secret_name(name)
            && !is_placeholder(value)
        {
            parts.push(at + name.len() + 1..at + end);
        }
    }
    parts
}

/// A quick look before the words are taken apart.
fn might_be_secret(name: &str) -> bool {
    const HINTS: [&[u8]; 7] = [b"pass", b"secret", b"token", b"key", b"cred", b"auth", b"cookie"];
    let name = name.as_bytes();
    (0..name.len()).any(|i| {
        let hint: &[u8] = match name[i] | 0x20 {
            b'p' => HINTS[0],
            b's' => HINTS[1],
            b't' => HINTS[2],
            b'k' => HINTS[3],
            b'a' => HINTS[5],
            b'c' if name.get(i + 1).is_some_and(|b| b | 0x20 == b'r') => HINTS[4],
            b'c' => HINTS[6],
            _ => return false,
        };
        name.len() >= i + hint.len() && name[i..i + hint.len()].eq_ignore_ascii_case(hint)
    })
}

/// Whether a line may hold a value that is secret by its form.
fn might_hold_secret(line: &str) -> bool {
    let bytes = line.as_bytes();
    (0..bytes.len()).any(|i| match bytes[i] {
        b'@' => true,
        b'h' | b's' | b'g' | b'x' | b'A' | b'n' | b'B' => {
            (i == 0 || !bytes[i - 1].is_ascii_alphanumeric())
                && (PREFIXES.iter().any(|(prefix, _)| bytes[i..].starts_with(prefix.as_bytes())) || bytes[i..].starts_with(b"Bearer "))
        }
        _ => false,
    })
}

/// Names of secrets: a word such as `token` or `password`, or `key` after `api`, `access`, `secret` or `private`.
fn is_secret_name(name: &str) -> bool {
    let words = words(name);
    // Where a secret lies is none.
    if words.last().is_some_and(|last| matches!(last.as_str(), "path" | "file" | "dir" | "directory" | "name" | "count" | "limit")) {
        return false;
    }
    let has = |word: &str| words.iter().any(|w| w == word);
    let before_key = |word: &str| words.windows(2).any(|pair| pair[0] == word && pair[1] == "key");
    // Token ids and strings of a vocabulary are no secrets.
    let of_vocabulary = |word: &str| {
        matches!(word, "bos" | "eos" | "pad" | "unk" | "cls" | "sep" | "mask" | "image" | "video" | "end" | "start" | "per" | "max")
    };
    let vocabulary = words.windows(2).any(|pair| pair[1] == "token" && of_vocabulary(&pair[0]));
    is_password(name)
        || ["authorization", "cookie"].into_iter().any(has)
        || (has("token") && !vocabulary)
        || ["api", "access", "secret", "private", "signing", "auth"].into_iter().any(before_key)
}

/// Names whose value is secret even when it is a number.
fn is_password(name: &str) -> bool {
    words(name)
        .iter()
        .any(|word| matches!(word.as_str(), "password" | "passwd" | "passphrase" | "secret" | "apikey" | "credential" | "credentials"))
}

/// Lower-case words of a name in any of the usual cases.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && lower) {
            words.push(String::new());
        }
        lower = c.is_lowercase();
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Not a value: empty, a variable, or visibly redacted.
fn is_placeholder(value: &str) -> bool {
    let value = value.trim().trim_matches(['"', '\'']);
    value.is_empty()
        || value.starts_with('$')
        || (value.starts_with('<') && value.ends_with('>'))
        || value.chars().all(|c| matches!(c, '*' | 'x' | 'X' | '.' | '[' | ']' | '{' | '}' | '~'))
        || matches!(value.to_ascii_lowercase().as_str(), "redacted" | "none" | "null" | "true" | "false" | "0" | "1")
}

#[cfg(test)]
mod tests {
    use super::secrets;

    #[test]
    fn credentials_are_known_by_name_or_form_wherever_they_stand() {
        for (text, hidden) in [
            ("HF_TOKEN: abcdef", "abcdef"),
            ("  huggingFaceToken: 'a b'", "'a b'"),
            ("env: { A: 1, api_key: k1, B: 2 }", "k1"),
            ("- AWS_SECRET_ACCESS_KEY: k # why", "k"),
            ("password: 12345678", "12345678"),
            ("password: [hunter2, b]", "[hunter2, b]"),
            ("password:\n  - hunter2\n", "- hunter2"),
            ("password: |\n  line one\n  line two\nnext: 1", "line one\n  line two"),
            ("password: !t secret", "!t secret"),
            ("# DB_PASSWORD: hunter2", "hunter2"),
            ("X: hf_aBcDeFgHiJkLmNoPqRsT", "hf_aBcDeFgHiJkLmNoPqRsT"),
            ("hf_aBcDeFgHiJkLmNoPqRsT: 1", "hf_aBcDeFgHiJkLmNoPqRsT"),
            ("url: https://me:pw@example.org/x", "me:pw"),
            ("url: https://example.org/x?a=1&access_token=zzz#f", "zzz"),
            ("a: [1, AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
            ("k: |\n  -----BEGIN PRIVATE KEY-----\n  abc\n  -----END PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n  abc"),
            ("Authorization: Bearer abc", "Bearer abc"),
            ("env: { HF_TOKEN: 'a\n Zq9xS3cret\n}", "'a\n Zq9xS3cret\n}"),
            ("HF_TOKEN: \"a\n  b\" # c", "\"a\n  b\""),
            ("extra: '--token=Zq9xS3cret'", "Zq9xS3cret"),
            ("a: x # HF_TOKEN=Zq9xS3cret", "Zq9xS3cret"),
            ("A: *Bearer eyJhbGciOiJIUzI1", "*Bearer eyJhbGciOiJIUzI1"),
            ("header: Bearer abcdefgh1", "Bearer abcdefgh1"),
        ] {
            let found = secrets(text);
            assert_eq!(found.iter().map(|s| &text[s.value.clone()]).collect::<Vec<_>>(), [hidden], "{text}");
        }
    }

    #[test]
    fn other_values_are_left_alone() {
        for text in [
            "FASTVIDEO_ATTENTION_BACKEND: VIDEO_SPARSE_ATTN",
            "TOKENIZERS_PARALLELISM: \"false\"",
            "text_tokens: 512",
            "pad_token: \"<pad>\"",
            "max_token: many",
            "HF_TOKEN: $HF_TOKEN",
            "HF_TOKEN_PATH: /root/.cache/token",
            "HF_TOKEN: <redacted>",
            "HF_TOKEN: \"\"",
            "token: 512",
            "note: one token: 512 wide, and a key: none",
            "monkey: banana",
            "url: https://example.com/a@b:c",
            "keyboard: us",
            "title: sk-learn is not a key",
            "token:\n  kind: bpe\n",
            "url: https://huggingface.co/hf_models",
        ] {
            assert_eq!(secrets(text), [], "{text}");
        }
    }

    #[test]
    fn any_text_is_scanned_without_harm() {
        let pieces = [
            "password",
            ":",
            " ",
            "\n",
            "é",
            "\"",
            "'",
            "[",
            "{",
            ",",
            "hf_",
            "aB3",
            "://",
            "@",
            "?",
            "=",
            "#",
            "- ",
            "|",
            "-----BEGIN",
            "🚀",
            "\r\n",
            "\t",
        ];
        let mut state = 7_u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(pieces[usize::try_from((state >> 33) % pieces.len() as u64).unwrap_or(0)]);
            }
            for secret in secrets(&text) {
                assert!(text.get(secret.value.clone()).is_some() && secret.key.is_none_or(|key| text.get(key).is_some()), "{text:?}");
            }
        }
    }
}

//! Values that look like credentials. They are reported by their key and shown nowhere.

use crate::yaml::{Kind, Node};
use crate::{codes::Code, finding::Finding};

use super::At;

/// Reports every credential-like value below `node`.
pub(crate) fn check(at: &At, node: &Node, findings: &mut Vec<Finding>) {
    match &node.kind {
        Kind::Mapping(entries) => {
            for (key, value) in entries {
                if let Kind::Scalar(serde_json::Value::String(text)) = &value.kind {
                    if is_credential(&key.name, text) {
                        let label = "looks like a credential";
                        let message = format!("`{}` looks like a credential; its value is hidden", crate::yaml::short(&key.name));
                        let mut finding = at.finding(Code::Credential, key.span.clone(), label, message);
                        finding.hidden = Some(value.span.clone());
                        findings.push(finding.help("remove it and revoke it; records are public"));
                    }
                } else {
                    check(at, value, findings);
                }
            }
        }
        Kind::Sequence(items) => {
            for item in items {
                match &item.kind {
                    Kind::Scalar(serde_json::Value::String(text)) if is_secret_value(text) => {
                        let mut finding = at.finding(
                            Code::Credential,
                            item.span.start..item.span.start,
                            "looks like a credential",
                            "an item looks like a credential; it is hidden",
                        );
                        finding.hidden = Some(item.span.clone());
                        findings.push(finding.help("remove it and revoke it; records are public"));
                    }
                    _ => check(at, item, findings),
                }
            }
        }
        Kind::Scalar(_) | Kind::Refused => {}
    }
}

fn is_credential(key: &str, value: &str) -> bool {
    is_secret_value(value) || (is_secret_name(key) && !is_placeholder(value))
}

/// Names of secrets: a word such as `token` or `password`, or `key` after `api`, `access`, `secret` or `private`.
fn is_secret_name(key: &str) -> bool {
    let words = words(key);
    let has = |word: &str| words.iter().any(|w| w == word);
    let before_key = |word: &str| words.windows(2).any(|pair| pair[0] == word && pair[1] == "key");
    // Token ids and strings of a vocabulary are no secrets.
    let vocabulary = words.windows(2).any(|pair| {
        pair[1] == "token"
            && matches!(
                pair[0].as_str(),
                "bos" | "eos" | "pad" | "unk" | "cls" | "sep" | "mask" | "image" | "video" | "end" | "start" | "per"
            )
    });
    ["password", "passwd", "passphrase", "secret", "apikey", "credential", "credentials", "authorization", "cookie"].into_iter().any(has)
        || (has("token") && !vocabulary)
        || ["api", "access", "secret", "private", "signing", "auth"].into_iter().any(before_key)
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
    let value = value.trim();
    value.is_empty()
        || value.starts_with('$')
        || (value.starts_with('<') && value.ends_with('>'))
        || value.chars().all(|c| matches!(c, '*' | 'x' | 'X' | '.'))
        || matches!(value.to_ascii_lowercase().as_str(), "redacted" | "none" | "null" | "true" | "false" | "0" | "1")
}

/// Values whose form gives them away.
fn is_secret_value(value: &str) -> bool {
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
    let random = |rest: &str, length: usize| {
        rest.len() + 4 >= length
            && rest.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
            && rest.chars().any(|c| c.is_ascii_digit() || c.is_ascii_uppercase())
    };
    let value = value.trim();
    value.contains("-----BEGIN")
        || value.strip_prefix("Bearer ").is_some_and(|rest| rest.len() >= 8 && !is_placeholder(rest))
        || PREFIXES.iter().any(|(prefix, length)| value.strip_prefix(prefix).is_some_and(|rest| random(rest, *length)))
        || value.split_once("://").is_some_and(|(_, rest)| {
            rest.split('/')
                .next()
                .and_then(|authority| authority.rsplit_once('@'))
                .is_some_and(|(user, _)| user.split_once(':').is_some_and(|(_, password)| !is_placeholder(password)))
        })
}

#[cfg(test)]
mod tests {
    use super::is_credential;

    #[test]
    fn credentials_are_known_by_name_or_form() {
        for (key, value) in [
            ("HF_TOKEN", "abcdef"),
            ("huggingFaceToken", "abcdef"),
            ("api_key", "k"),
            ("AWS_SECRET_ACCESS_KEY", "k"),
            ("DB_PASSWORD", "hunter2"),
            ("X", "hf_aBcDeFgHiJkLmNoPqRsT"),
            ("X", "Bearer abcdefgh1"),
            ("HTTPS_PROXY", "http://user:pw@proxy:3128"),
            ("X", "-----BEGIN PRIVATE KEY-----"),
            ("X", "AKIAIOSFODNN7EXAMPLE"),
        ] {
            assert!(is_credential(key, value), "{key}");
        }
        for (key, value) in [
            ("FASTVIDEO_ATTENTION_BACKEND", "VIDEO_SPARSE_ATTN"),
            ("TOKENIZERS_PARALLELISM", "false"),
            ("text_tokens", "512"),
            ("pad_token", "<pad>"),
            ("HF_TOKEN", "$HF_TOKEN"),
            ("HF_TOKEN", "<redacted>"),
            ("HF_TOKEN", ""),
            ("monkey", "banana"),
            ("url", "https://example.com/a@b:c"),
            ("keyboard", "us"),
        ] {
            assert!(!is_credential(key, value), "{key}");
        }
    }
}

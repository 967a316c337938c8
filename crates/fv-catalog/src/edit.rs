//! Inserting a reference run into a manifest's text, without touching what the author wrote.

use serde_json::Value;

use crate::yaml::{self, Kind, Node};

/// `text` with `run` as the last of `capacity.reference_runs`.
///
/// # Errors
/// When the place for it cannot be found, or the rest of the manifest would not stay as it is.
pub fn insert_run(text: &str, run: &Value) -> Result<String, String> {
    let (Some(root), problems) = yaml::parse(text) else { return Err("the manifest is not valid YAML".into()) };
    if !problems.is_empty() {
        return Err("the manifest is not valid YAML".into());
    }
    let (_, capacity) = root.entry("capacity").ok_or("the manifest has no `capacity` section")?;
    let edited = if let Some((key, list)) = capacity.entry("reference_runs") {
        match &list.kind {
            Kind::Sequence(items) if text[list.span.clone()].starts_with('[') => in_flow(text, key.span.start, list, items, run)?,
            Kind::Sequence(items) => {
                let first = items.first().ok_or("`reference_runs` is empty in a way that cannot be edited")?;
                let dash = text[..first.span.start].rfind('-').ok_or("no `-` before the first run")?;
                after(text, end_of_line(text, list.span.end), &block(run, column(text, dash))?)
            }
            _ => return Err("`reference_runs` is not a list".into()),
        }
    } else {
        let (first, _) = capacity.entries().first().ok_or("`capacity` is empty")?;
        if text[capacity.span.clone()].starts_with('{') {
            return Err("`capacity` is written in one line; write it as an indented block first".into());
        }
        let indent = column(text, first.span.start);
        let section = format!("{}reference_runs:\n{}", " ".repeat(indent), block(run, indent + 2)?);
        after(text, end_of_line(text, capacity.span.end), &section)
    };
    unchanged_otherwise(&root, &edited, run)?;
    Ok(edited)
}

/// Into a list in brackets: an empty one becomes a block below its key, any other keeps its style.
fn in_flow(text: &str, key: usize, list: &Node, items: &[Node], run: &Value) -> Result<String, String> {
    if items.is_empty() {
        let without = format!("{}{}", text[..list.span.start].trim_end_matches(' '), &text[list.span.end..]);
        let shift = text.len() - without.len();
        return Ok(after(&without, end_of_line(&without, list.span.end - shift), &block(run, column(text, key) + 2)?));
    }
    let end = items.last().map_or(list.span.end, |item| item.span.end);
    Ok(format!("{}, {run}{}", &text[..end], &text[end..]))
}

/// The run as an item of a block list.
fn block(run: &Value, indent: usize) -> Result<String, String> {
    let yaml = serde_yaml::to_string(run).map_err(|error| error.to_string())?;
    let pad = " ".repeat(indent);
    let line = |(i, line): (usize, &str)| match (i, line.is_empty()) {
        (0, _) => format!("{pad}- {line}\n"),
        (_, true) => "\n".to_owned(),
        (_, false) => format!("{pad}  {line}\n"),
    };
    Ok(yaml.lines().enumerate().map(line).collect())
}

/// `text` with `lines` behind the line that ends at `at`, with the line ends that the text has.
fn after(text: &str, at: usize, lines: &str) -> String {
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let rest = text[at..].strip_prefix('\n').unwrap_or(&text[at..]);
    format!("{}{end}{}{rest}", text[..at].trim_end_matches('\r'), lines.replace('\n', end))
}

/// The end of the line on which the text before `end` stops, comment included.
fn end_of_line(text: &str, end: usize) -> usize {
    let end = text[..end].trim_end().len();
    text[end..].find('\n').map_or(text.len(), |i| end + i)
}

/// Characters before `at` in its line.
fn column(text: &str, at: usize) -> usize {
    let start = text[..at].rfind('\n').map_or(0, |i| i + 1);
    text[start..at].chars().count()
}

fn unchanged_otherwise(before: &Node, edited: &str, run: &Value) -> Result<(), String> {
    let mut want = before.to_json();
    let runs = &mut want["capacity"]["reference_runs"];
    if runs.is_null() {
        *runs = Value::Array(Vec::new());
    }
    if let Some(runs) = runs.as_array_mut() {
        runs.push(run.clone());
    }
    let (after, problems) = yaml::parse(edited);
    let same = problems.is_empty() && after.is_some_and(|after| after.to_json() == want);
    if same {
        Ok(())
    } else {
        Err("the run cannot be inserted without changing the rest of the manifest; write `reference_runs` as an indented block".into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::insert_run;

    fn run() -> serde_json::Value {
        json!({"id": "r", "env": {"A": "1", "YES": "yes", "N": "012"}, "text": "two\nlines\n"})
    }

    #[test]
    fn comments_and_layout_stay() {
        let heads = ["title: x\n", "# café\ntitle: x # why\n\n"];
        let capacities = [
            ("capacity:\n  memory_rules: wan # rule\n", true),
            ("capacity:\n  memory_rules: wan\n  reference_runs: [] # none yet\n", true),
            ("capacity:\n  reference_runs:   []\n  memory_rules: wan\n", true),
            ("capacity:\n  reference_runs:\n  - id: a # first\n    note: |\n      text\n  # after\n  memory_rules: wan\n", true),
            ("capacity:\n    reference_runs:\n      - {id: a}\n      - {id: b}\n\n\n", true),
            ("capacity:\n  reference_runs: [{id: a}]\n", true),
            ("capacity: {memory_rules: wan}\n", false),
            ("capacity: {reference_runs: []}\n", false),
            ("title: y\n", false),
        ];
        for head in heads {
            for (capacity, possible) in capacities {
                for text in [
                    format!("{head}{capacity}").replace("title: x\ntitle: y\n", "title: y\n"),
                    format!("{head}{capacity}").replace('\n', "\r\n"),
                    format!("{head}{capacity}").trim_end().to_owned(),
                ] {
                    let edited = insert_run(&text, &run());
                    assert_eq!(edited.is_ok(), possible, "{text}\n{edited:?}");
                    let Ok(edited) = edited else { continue };
                    for line in text.lines().filter(|line| !line.contains('[')) {
                        assert!(edited.lines().any(|l| l == line), "{line:?} lost in\n{edited}");
                    }
                }
            }
        }
    }
}

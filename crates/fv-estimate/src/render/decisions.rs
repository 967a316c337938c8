//! Why a plan is as it is, and what two plans do differently.

use fv_spec::plan::{
    Alternative, Decision, Numbers, Plan, ReasonCode,
    answer::{DecisionDiff, FieldDiff, PlanDiff, PlanExplanation, Side},
};
use fv_spec::questions::OutputEffect;
use serde_json::Value;

use super::text::{Line, Text, Tone};
use super::words::{effect, memory, numbers, value};
use super::{bounded, gib, while_doing};

/// Every decision of a plan: value, reason, the numbers behind it, and what lost. What has one value only comes last, together;
/// of a later pass only what differs from the one before is said at length.
pub(super) fn all(text: &mut Text, plan: &Plan, width: usize) {
    listed(text, "decisions", &plan.decisions, &[], width);
    let mut before: &[Decision] = &[];
    for pass in plan.passes.iter().filter(|pass| !pass.decisions.is_empty()) {
        let title =
            if plan.passes.len() > 1 { format!("decisions of the {} pass", pass.name) } else { "decisions while sampling".to_owned() };
        listed(text, &title, &pass.decisions, before, width);
        before = &pass.decisions;
    }
}

fn listed(text: &mut Text, title: &str, decisions: &[Decision], before: &[Decision], width: usize) {
    if decisions.is_empty() {
        return;
    }
    text.blank();
    text.heading(title);
    let (same, own): (Vec<_>, Vec<_>) = decisions.iter().partition(|decision| before.contains(decision));
    let (fixed, open): (Vec<&Decision>, Vec<&Decision>) = own.into_iter().partition(|decision| is_fixed(decision));
    for Decision { key, value: chosen, reason, numbers: behind, alternatives, output_effect } in open {
        let line = Line::new().plain(key).plain(" = ").add(Tone::Strong, &value(key, chosen)).plain("  ");
        let line = line.plain(reason.meaning()).quiet(&code(*reason)).quiet(&effect_words(*output_effect));
        text.wrapped(Line::new().plain("  "), line, width);
        if !behind.is_empty() {
            text.wrapped(Line::new().pad(6), Line::new().quiet(&numbers(behind)), width);
        }
        for (values, reason, behind) in lost(key, alternatives) {
            let words = Line::new().plain(&format!("not {values}: {}", reason.meaning())).quiet(&code(reason));
            let behind = if behind.is_empty() { String::new() } else { format!(" {}", numbers(behind)) };
            text.wrapped(Line::new().pad(6), words.quiet(&behind), width);
        }
    }
    for (name, these) in [("  fixed: ", fixed), ("  as before: ", same)] {
        let words = these.iter().map(|decision| format!("{} = {}", decision.key, value(&decision.key, &decision.value)));
        let words = words.collect::<Vec<_>>().join(", ");
        if !words.is_empty() {
            text.wrapped(Line::new().quiet(name), Line::new().quiet(&words), width);
        }
    }
}

/// What lost, values with the same reason and the same numbers together.
fn lost<'a>(key: &str, alternatives: &'a [Alternative]) -> Vec<(String, ReasonCode, &'a Numbers)> {
    let mut groups: Vec<(String, ReasonCode, &Numbers)> = Vec::new();
    for Alternative { value: lost, reason, numbers } in alternatives {
        match groups.iter_mut().find(|(_, known, behind)| known == reason && *behind == numbers) {
            Some((values, ..)) => *values = format!("{values}, {}", value(key, lost)),
            None => groups.push((value(key, lost), *reason, numbers)),
        }
    }
    groups
}

/// Whether there was nothing to decide.
fn is_fixed(decision: &Decision) -> bool {
    let constant = matches!(decision.reason, ReasonCode::PublishedConstant | ReasonCode::CardConstant);
    constant && decision.alternatives.is_empty()
}

fn code(reason: ReasonCode) -> String {
    format!(" [{}]", reason.word())
}

fn effect_words(output_effect: OutputEffect) -> String {
    if output_effect == OutputEffect::None { String::new() } else { format!(" ({})", effect(output_effect)) }
}

/// A plan's decisions in words.
pub fn plan_explanation(explanation: &PlanExplanation, width: usize) -> Text {
    let width = bounded(width);
    let mut text = Text::default();
    let count = explanation.decisions.len();
    text.line(Line::new().add(Tone::Strong, &explanation.id).plain(&format!(": {count} decisions")));
    for margin in &explanation.margins {
        let rank = margin.rank.map_or(String::new(), |rank| format!(" of device {rank}"));
        let (tone, words) = match u64::try_from(margin.margin_bytes) {
            Ok(left) => (Tone::Good, format!("{} to spare", gib(left))),
            Err(_) => (Tone::Unsure, format!("{} above it", gib(margin.margin_bytes.unsigned_abs()))),
        };
        let pass = margin.pass.as_ref().map_or(String::new(), |pass| format!(", {pass}"));
        let limit = if margin.limit_bytes == margin.budget_bytes { "the budget" } else { "what it is held against" };
        let peak = format!(
            "{}{rank}: the tightest peak ({}{pass}) is {} of {limit}, {}, ",
            memory(margin.resource),
            while_doing(margin.stage.word()),
            gib(margin.peak_bytes),
            gib(margin.limit_bytes)
        );
        text.wrapped(Line::new().plain("  "), Line::new().plain(&peak).add(tone, &words), width);
    }
    let mut before = None;
    for explained in &explanation.decisions {
        let decision = &explained.decision;
        let part = (explained.pass.as_deref(), decision.key.split('.').next().unwrap_or_default());
        if before != Some(part) {
            text.blank();
            let pass = part.0.map_or(String::new(), |pass| format!(", pass {pass}"));
            text.heading(&format!("{}{pass}", part.1));
            before = Some(part);
        }
        let mut line = Line::new().add(Tone::Strong, &decision.key).plain(" is ").add(Tone::Strong, &value(&decision.key, &decision.value));
        line = line.plain(&format!(": {}", explained.meaning)).quiet(&code(decision.reason)).plain(".");
        if !decision.numbers.is_empty() {
            line = line.quiet(&format!(" The numbers: {}.", numbers(&decision.numbers)));
        }
        for (lost, meaning) in decision.alternatives.iter().zip(&explained.alternatives) {
            line = line.plain(&format!(" Not {}: {meaning}", value(&decision.key, &lost.value))).quiet(&code(lost.reason));
            let behind = if lost.numbers.is_empty() { String::new() } else { format!(" ({})", numbers(&lost.numbers)) };
            line = line.quiet(&behind).plain(".");
        }
        if decision.output_effect != OutputEffect::None {
            line = line.plain(&format!(" It changes the output: {}.", effect(decision.output_effect)));
        }
        text.item(line, width);
    }
    text
}

/// What two plans do differently; `names` is what people call them.
pub fn plan_diff(diff: &PlanDiff, names: [&str; 2], width: usize) -> Text {
    let width = bounded(width);
    let mut text = Text::default();
    let PlanDiff { version: _, a, b, same, fields, decisions } = diff;
    let line = if *same {
        Line::new()
            .add(Tone::Good, "the same plan")
            .plain(&format!(": nothing that decides a run differs between {} and {}", names[0], names[1]))
    } else {
        Line::new().add(Tone::Strong, "different plans").plain(&format!(": {} and {}", names[0], names[1]))
    };
    text.line(line);
    text.blank();
    for (letter, name, id) in [("a", names[0], a), ("b", names[1], b)] {
        text.wrapped(Line::new().add(Tone::Strong, letter).plain("  "), Line::new().plain(name).quiet(&format!("  {id}")), width);
    }
    if !fields.is_empty() {
        text.blank();
        text.line(Line::new().add(Tone::Strong, "fields").quiet(&format!("  {} differ; a, then b", fields.len())));
        for field in fields {
            text.wrapped(Line::new().plain("  "), field_line(field), width);
        }
    }
    if !decisions.is_empty() {
        text.blank();
        text.line(Line::new().add(Tone::Strong, "decisions").quiet(&format!("  {} differ", decisions.len())));
        for DecisionDiff { pass, key, a, b } in decisions {
            let pass = pass.as_ref().map_or(String::new(), |pass| format!(" in pass {pass}"));
            text.wrapped(Line::new().plain("  "), Line::new().add(Tone::Strong, &format!("{key}{pass}")), width);
            for (letter, side) in [("a", a), ("b", b)] {
                text.wrapped(Line::new().pad(4).quiet(letter).plain("  "), side_line(key, side.as_ref()), width);
            }
        }
    }
    text
}

fn field_line(field: &FieldDiff) -> Line {
    // What has parts is there or not; of a peak its size says most.
    let shown = |side: &Option<Value>| match side {
        None => "absent".to_owned(),
        Some(Value::Object(parts)) => parts.get("bytes").map_or_else(|| "there".to_owned(), |bytes| value("bytes", bytes)),
        Some(Value::Array(items)) if items.iter().any(Value::is_object) => "there".to_owned(),
        Some(found) => value(&field.path, found),
    };
    let change = field.change.map_or(String::new(), |change| {
        let sign = if change < 0 { "-" } else { "+" };
        format!("  {sign}{}", value(&field.path, &change.unsigned_abs().into()))
    });
    Line::new().plain(&field.path).plain("  ").plain(&shown(&field.a)).quiet(" -> ").add(Tone::Strong, &shown(&field.b)).quiet(&change)
}

fn side_line(key: &str, side: Option<&Side>) -> Line {
    match side {
        Some(side) => Line::new().plain(&format!("{}: {}", value(key, &side.value), side.reason.meaning())).quiet(&code(side.reason)),
        None => Line::new().quiet("does not decide this"),
    }
}

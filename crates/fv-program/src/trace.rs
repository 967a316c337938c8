//! The simulated run as a trace: Chrome's trace event format, which Perfetto and `chrome://tracing` open. One track for each
//! stream, one arrow for each wait between streams.
//!
//! Format: <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>

use std::collections::HashMap;

use fv_spec::program::{EventId, Op, Program, Stream};
use serde::Serialize;

use crate::{
    check::kernel_name,
    rates::Cost,
    simulate::{Span, replay},
};

/// A trace; its JSON is what viewers open.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// What happens.
    pub trace_events: Vec<Event>,
    /// How viewers show times.
    pub display_time_unit: &'static str,
}

/// One entry. Times are microseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// What is shown.
    pub name: String,
    /// The stage.
    pub cat: &'static str,
    /// `X` for what takes time, `s` and `f` for the ends of an arrow, `M` for names of tracks.
    pub ph: &'static str,
    /// Begins at.
    pub ts: f64,
    /// Takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dur: Option<f64>,
    /// One process.
    pub pid: u32,
    /// The stream.
    pub tid: u32,
    /// Of an arrow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// `e`: an arrow ends at what encloses its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bp: Option<&'static str>,
    /// More about it.
    #[serde(skip_serializing_if = "Arguments::is_empty")]
    pub args: Arguments,
}

/// More about an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Arguments {
    /// Of a track.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'static str>,
    /// Index of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<u32>,
    /// Segment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment: Option<String>,
    /// Repetition of the segment, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetition: Option<u32>,
    /// What takes its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<&'static str>,
}

impl Arguments {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The trace of a program that is right, with the first so many repetitions of each segment; those after them leave a gap.
pub fn trace(program: &Program, costs: &[Cost], repetitions: u32) -> Trace {
    let ops: Vec<&Op> = program.ops().map(|(_, op)| op).collect();
    let mut writer = Writer { program, ops: &ops, costs, repetitions, events: tracks(), records: HashMap::new(), arrows: 0 };
    replay(program, costs, |span| writer.show(span));
    Trace { trace_events: writer.events, display_time_unit: "ms" }
}

fn tracks() -> Vec<Event> {
    let track = |stream: &Stream| Event {
        name: "thread_name".to_owned(),
        cat: "",
        ph: "M",
        ts: 0.0,
        dur: None,
        pid: 0,
        tid: *stream as u32,
        id: None,
        bp: None,
        args: Arguments { name: Some(stream.word()), ..Arguments::default() },
    };
    Stream::ALL.iter().map(track).collect()
}

struct Writer<'a> {
    program: &'a Program,
    ops: &'a [&'a Op],
    costs: &'a [Cost],
    repetitions: u32,
    events: Vec<Event>,
    /// When each event was recorded last, and where; nothing where that is not shown.
    records: HashMap<EventId, (Span, Stream)>,
    arrows: u64,
}

impl Writer<'_> {
    fn show(&mut self, span: Span) {
        let op = self.ops[span.op as usize];
        if span.repetition < self.repetitions {
            let (segment, cost) = (&self.program.segments[span.segment as usize], self.costs[span.op as usize]);
            let phase = self.program.phases.get(usize::from(op.phase)).map_or("", String::as_str);
            let block = op.block.map_or_else(String::new, |block| format!(" {block}"));
            let args = Arguments {
                operation: Some(span.op),
                segment: Some(segment.name.clone()),
                repetition: Some(span.repetition),
                resource: Some(cost.resource.word()),
                ..Arguments::default()
            };
            let name = format!("{} ({phase}{block})", kernel_name(&op.kernel));
            let dur = Some(microseconds(span.end_ns - span.start_ns));
            self.push(Event { name, ph: "X", dur, args, ..self.event(op, span.start_ns, &span) });
            for event in &op.waits {
                self.arrow(*event, op, &span);
            }
        }
        if let Some(event) = op.records {
            self.records.insert(event, (span, op.stream));
        }
    }

    fn event(&self, op: &Op, ns: u64, span: &Span) -> Event {
        let cat = self.program.segments[span.segment as usize].stage.word();
        let (tid, args) = (op.stream as u32, Arguments::default());
        Event { name: String::new(), cat, ph: "", ts: microseconds(ns), dur: None, pid: 0, tid, id: None, bp: None, args }
    }

    /// From the end of what recorded an event to the beginning of what waits for it, between streams.
    fn arrow(&mut self, event: EventId, op: &Op, span: &Span) {
        let Some((from, stream)) = self.records.get(&event).copied() else { return };
        if stream == op.stream || from.repetition >= self.repetitions {
            return;
        }
        self.arrows += 1;
        let (name, id) = (format!("event {event}"), Some(self.arrows));
        let source = self.ops[from.op as usize];
        // The arrow leaves from within what it belongs to.
        let leaves = from.end_ns.saturating_sub(1).max(from.start_ns);
        self.push(Event { name: name.clone(), ph: "s", id, ..self.event(source, leaves, &from) });
        self.push(Event { name, ph: "f", id, bp: Some("e"), ..self.event(op, span.start_ns, span) });
    }

    fn push(&mut self, event: Event) {
        self.events.push(event);
    }
}

/// For viewers, which take fractions.
#[expect(clippy::cast_precision_loss, reason = "for viewers")]
fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

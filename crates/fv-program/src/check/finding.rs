//! What is wrong with a program, and where.

use std::fmt;

use fv_spec::program::{BufferId, Op, OpIndex, Program, View};

macro_rules! codes {
    ($($variant:ident $slug:literal $about:literal)*) => {
        /// The kind of a finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $(#[doc = $about] $variant,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The code as printed.
            pub fn slug(self) -> &'static str {
                match self { $(Self::$variant => $slug,)* }
            }

            /// What it means.
            pub fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }
        }
    };
}

codes! {
    Version "version" "The program is written in a version of the format that is not read here."
    OtherModel "other-model" "The program is for another model."
    OtherPlan "other-plan" "The program executes another plan."
    OtherSchedule "other-schedule" "The program takes other steps than the request asks for."
    NoSuchEntry "no-such-entry" "A number refers to a buffer, region, event, phase, group or tensor that the program does not have."
    Empty "empty" "A segment has no operation or is never issued, or a view has no element."
    OutsideBuffer "outside-buffer" "A view reaches beyond its buffer."
    BadView "bad-view" "A view's rows overlap, or its elements do not lie at multiples of their size."
    WrongStream "wrong-stream" "A kernel is queued on a stream that does not execute it."
    WrongTier "wrong-tier" "An operation uses memory that its stream does not reach."
    BadOperands "bad-operands" "The operands of an operation are not those of its kernel."
    OutsideLife "outside-life" "A buffer is used before it is allocated or after it is freed."
    Unused "unused" "A buffer is never used."
    UnwrittenRead "unwritten-read" "An operation reads bytes that none wrote before it."
    NeverRecorded "never-recorded" "An operation waits for an event that none records."
    Race "race" "Two operations use the same bytes of a buffer, one of them writes, and neither is over before the other begins."
    Overlap "overlap" "Two buffers share bytes though neither's uses are all over before the other's begin."
    NoPlace "no-place" "A buffer has no offset, or one that is not aligned."
    OutsideRegion "outside-region" "A buffer reaches beyond its region."
    OverBudget "over-budget" "A region is larger than what it may use."
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub code: Code,
    /// The operation, where there is one.
    pub op: Option<OpIndex>,
    /// The buffer, where there is one.
    pub buffer: Option<BufferId>,
    /// What was found and what is allowed, with the operation and the buffer named.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.slug(), self.message)
    }
}

/// Findings on the way, with the program that names things.
pub(crate) struct Report<'a> {
    pub(crate) program: &'a Program,
    findings: Vec<Finding>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(program: &'a Program) -> Self {
        Self { program, findings: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    pub(crate) fn add(&mut self, code: Code, message: String) {
        self.findings.push(Finding { code, op: None, buffer: None, message });
    }

    pub(crate) fn at_op(&mut self, code: Code, op: OpIndex, message: &str) {
        let message = format!("{}: {message}", self.op_name(op));
        self.findings.push(Finding { code, op: Some(op), buffer: None, message });
    }

    pub(crate) fn at_buffer(&mut self, code: Code, buffer: BufferId, message: &str) {
        let message = format!("{}: {message}", self.buffer_name(buffer));
        self.findings.push(Finding { code, op: None, buffer: Some(buffer), message });
    }

    pub(crate) fn at_use(&mut self, code: Code, op: OpIndex, buffer: BufferId, message: &str) {
        let message = format!("{}, {}: {message}", self.op_name(op), self.buffer_name(buffer));
        self.findings.push(Finding { code, op: Some(op), buffer: Some(buffer), message });
    }

    fn op(&self, index: OpIndex) -> Option<&'a Op> {
        let mut index = index as usize;
        for segment in &self.program.segments {
            match segment.ops.get(index) {
                Some(op) => return Some(op),
                None => index -= segment.ops.len(),
            }
        }
        None
    }

    /// Such as `operation 12 (product, attention, block 3, compute)`.
    pub(crate) fn op_name(&self, index: OpIndex) -> String {
        let Some(op) = self.op(index) else { return format!("operation {index}") };
        let phase = self.program.phases.get(usize::from(op.phase)).map_or_else(|| format!("phase {}", op.phase), String::clone);
        let block = op.block.map_or_else(String::new, |block| format!(", block {block}"));
        format!("operation {index} ({}, {phase}{block}, {})", super::operands::kernel_name(&op.kernel), op.stream.word())
    }

    /// Such as `buffer 7 (query)`.
    pub(crate) fn buffer_name(&self, buffer: BufferId) -> String {
        match self.program.buffers.get(buffer as usize) {
            Some(found) => format!("buffer {buffer} ({})", found.name),
            None => format!("buffer {buffer}"),
        }
    }

    /// The findings, those of one kind and place once.
    pub(crate) fn finish(mut self) -> Vec<Finding> {
        self.findings.sort_by(|a, b| (a.op, a.buffer, a.code, &a.message).cmp(&(b.op, b.buffer, b.code, &b.message)));
        self.findings.dedup();
        self.findings
    }
}

/// Such as `32760 x 1536 bf16`.
pub(crate) fn shape(view: &View) -> String {
    format!("{} x {} {}", view.rows, view.columns, view.element.word())
}

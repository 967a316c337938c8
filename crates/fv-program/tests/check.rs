//! Every kind of finding, each by one change to a program that is right.

use fv_program::{
    arena::{Effort, pack},
    check::{Budget, Code, Finding, check, check_belongs, check_places},
    synthetic::Transformer,
};
use fv_spec::program::{Element, Kernel, Op, Program, Schedule, Stream, Tier};

fn packed() -> Program {
    let mut program = Transformer::TINY.program();
    pack(&mut program, Effort::default());
    program
}

fn after(change: impl FnOnce(&mut Program)) -> Vec<Finding> {
    let mut program = packed();
    change(&mut program);
    check_places(&program, &[])
}

/// The first operation of a step with this kernel and stream.
fn op(program: &mut Program, wanted: impl Fn(&Op) -> bool) -> &mut Op {
    program.segments[2].ops.iter_mut().find(|op| wanted(op)).expect("a step has it")
}

fn product(program: &mut Program) -> &mut Op {
    op(program, |op| matches!(op.kernel, Kernel::Product { .. }))
}

fn copy(program: &mut Program) -> &mut Op {
    op(program, |op| op.stream == Stream::CopyIn)
}

type Change = fn(&mut Program);

const CHANGES: &[(Code, Change)] = &[
    (Code::Version, |program| program.version = 2),
    (Code::NoSuchEntry, |program| product(program).reads[0].buffer = 4000),
    (Code::NoSuchEntry, |program| product(program).phase = 99),
    (Code::NoSuchEntry, |program| product(program).records = Some(4000)),
    (Code::NoSuchEntry, |program| program.events = u32::MAX),
    (Code::NoSuchEntry, |program| program.buffers[0].region = 7),
    (Code::NoSuchEntry, |program| program.buffers[0].last = 100_000),
    (Code::NoSuchEntry, |program| program.groups.clear()),
    (Code::Empty, |program| program.segments[2].repeat = 0),
    (Code::Empty, |program| product(program).reads[0].rows = 0),
    (Code::OutsideBuffer, |program| product(program).writes[0].offset_bytes += 256),
    (Code::OutsideBuffer, |program| product(program).writes[0].rows = u64::MAX),
    (Code::OutsideBuffer, |program| product(program).writes[0].pitch = u64::MAX),
    (Code::BadView, |program| product(program).writes[0].pitch -= 1),
    (Code::BadView, |program| product(program).writes[0].offset_bytes = 1),
    (Code::WrongStream, |program| product(program).stream = Stream::CopyOut),
    (Code::WrongStream, |program| copy(program).kernel = Kernel::Zero),
    (Code::WrongTier, |program| copy(program).stream = Stream::CopyOut),
    (Code::WrongTier, |program| program.regions[0].tier = Tier::Pinned),
    (Code::WrongTier, |program| program.regions[1].tier = Tier::Device),
    (Code::BadOperands, |program| product(program).reads[0].columns -= 1),
    (Code::BadOperands, |program| product(program).reads[1].element = Element::Int8),
    (Code::BadOperands, |program| product(program).reads.truncate(1)),
    (Code::OutsideLife, |program| program.buffers.iter_mut().for_each(|buffer| buffer.last -= 1)),
    (Code::Unused, |program| program.buffers.push(program.buffers[0].clone())),
    (Code::UnwrittenRead, |program| program.segments[1].ops[2].writes = program.segments[1].ops[2].reads.clone()),
    (Code::NeverRecorded, |program| copy(program).waits.push(program_events())),
    (Code::Race, |program| copy(program).waits.clear()),
    (Code::Overlap, |program| program.buffers.iter_mut().for_each(|buffer| buffer.offset_bytes = Some(0))),
    (Code::NoPlace, |program| program.buffers[3].offset_bytes = None),
    (Code::NoPlace, |program| program.buffers[3].offset_bytes = Some(128)),
    (Code::OutsideRegion, |program| program.regions[0].bytes -= 256),
    (Code::OutsideRegion, |program| program.buffers[3].offset_bytes = Some(u64::MAX - 255)),
];

/// An event of the program that no operation records: the last slot's, once nothing is issued there.
fn program_events() -> u32 {
    packed().events
}

#[test]
fn every_change_is_found_and_told() {
    for (at, (code, change)) in CHANGES.iter().enumerate() {
        let findings = after(|program| {
            program.events += 1;
            change(program);
        });
        assert!(findings.iter().any(|finding| finding.code == *code), "change {at}: {code:?} is not among {findings:#?}");
        for finding in &findings {
            assert!(
                finding.message.len() > 20 && finding.op.is_none_or(|op| finding.message.contains(&format!("operation {op} ("))),
                "{finding}"
            );
            assert!(
                finding.buffer.is_none_or(|buffer| finding.message.contains(&format!("buffer {buffer} ("))) || *code == Code::NoSuchEntry,
                "{finding}"
            );
        }
    }
}

#[test]
fn every_code_has_a_change() {
    let elsewhere = [Code::OtherModel, Code::OtherPlan, Code::OtherSchedule, Code::OverBudget];
    for code in Code::ALL {
        let changes = CHANGES.iter().filter(|(changed, _)| changed == code).count();
        assert!(changes > 0 || elsewhere.contains(code), "{code:?}");
    }
}

#[test]
fn everything_is_told_at_once() {
    let findings = after(|program| {
        product(program).reads[0].columns -= 1;
        copy(program).waits.clear();
        program.regions[0].bytes -= 256;
    });
    for code in [Code::BadOperands, Code::Race, Code::OutsideRegion] {
        assert!(findings.iter().any(|finding| finding.code == code), "{code:?} is not among {findings:#?}");
    }
}

#[test]
fn messages_name_what_was_found_and_what_is_allowed() {
    let findings = after(|program| product(program).reads[0].columns -= 1);
    let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let op = findings[0].op.expect("an operation");
    let expected =
        format!("bad-operands: operation {op} (product, attention, block 0, compute): read 1 is 64 x 64 bf16; its kernel takes 64 x 63");
    assert_eq!(text, [expected]);
}

#[test]
fn regions_stay_within_budgets() {
    let program = packed();
    let bytes = program.regions[0].bytes;
    assert_eq!(check_places(&program, &[Budget { region: 0, bytes }]), []);
    let findings = check_places(&program, &[Budget { region: 0, bytes: bytes - 1 }, Budget { region: 9, bytes }]);
    assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), [Code::NoSuchEntry, Code::OverBudget]);
}

#[test]
fn a_program_belongs_to_a_model_a_plan_and_its_steps() {
    let program = packed();
    assert_eq!(check_belongs(&program, "synthetic", "", &program.schedule), []);
    let schedule = Schedule { steps: 5, ..program.schedule.clone() };
    let codes: Vec<Code> = check_belongs(&program, "wan", "plan", &schedule).iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [Code::OtherModel, Code::OtherPlan, Code::OtherSchedule]);
}

/// Whatever stands in a file, a check ends with findings.
#[test]
fn malformed_numbers_are_findings() {
    let json = serde_json::to_value(packed()).expect("it is plain data");
    let mut tried = 0;
    for pointer in numbers(&json, String::new()) {
        let mut changed = json.clone();
        *changed.pointer_mut(&pointer).expect("it is there") = serde_json::json!(4_294_967_295_u32);
        if let Ok(program) = serde_json::from_value::<Program>(changed) {
            check(&program);
            check_places(&program, &[]);
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried}");
}

/// Numbers of a program, of each kind of place a few.
fn numbers(value: &serde_json::Value, path: String) -> Vec<String> {
    match value {
        serde_json::Value::Number(_) => vec![path],
        serde_json::Value::Array(items) => {
            let few = items.iter().enumerate().step_by(items.len().div_ceil(6).max(1));
            few.flat_map(|(at, item)| numbers(item, format!("{path}/{at}"))).collect()
        }
        serde_json::Value::Object(fields) => fields.iter().flat_map(|(name, field)| numbers(field, format!("{path}/{name}"))).collect(),
        _ => Vec::new(),
    }
}

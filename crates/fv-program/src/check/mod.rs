//! Refuses programs that may not be executed: everything that is wrong at once, each with the operation or buffer named.
//!
//! [`check`] looks at a program by itself: its numbers, views, operands, lives, data flow and order. [`check_places`] looks at one
//! whose buffers have their places. [`check_belongs`] compares what it is for.

mod access;
mod finding;
mod operands;
mod places;
mod structure;
mod views;

use fv_spec::program::{Program, Schedule};

use crate::order::Order;
use finding::Report;
pub use finding::{Code, Finding};
pub use operands::kernel_name;
pub use places::Budget;

/// What is wrong with a program, places of buffers apart. Where numbers refer to nothing, only that is told.
pub fn check(program: &Program) -> Vec<Finding> {
    let mut report = Report::new(program);
    structure::check(&mut report);
    if report.is_empty() {
        views::check(&mut report);
        operands::check(&mut report);
        if views::sound(program) {
            access::check(&mut report, &Order::of(program));
        }
    }
    report.finish()
}

/// What is wrong with a program whose buffers have their places: all of [`check`], and the places, regions and budgets.
pub fn check_places(program: &Program, budgets: &[Budget]) -> Vec<Finding> {
    let mut findings = check(program);
    let mut report = Report::new(program);
    structure::check(&mut report);
    if report.is_empty() {
        places::check(&mut report, &Order::of(program), budgets);
        findings.extend(report.finish());
    }
    findings
}

/// Whether a program is what is to be executed: for this model, this plan, and these steps.
pub fn check_belongs(program: &Program, model: &str, plan: &str, schedule: &Schedule) -> Vec<Finding> {
    let mut report = Report::new(program);
    if program.model != model {
        report.add(Code::OtherModel, format!("the program is for the model `{}`, and `{model}` is to be run", program.model));
    }
    if program.plan != plan {
        report.add(Code::OtherPlan, format!("the program executes the plan `{}`, and the plan is `{plan}`", program.plan));
    }
    if program.schedule != *schedule {
        report.add(
            Code::OtherSchedule,
            format!("the program takes {}, and the request asks for {}", steps(&program.schedule), steps(schedule)),
        );
    }
    report.finish()
}

fn steps(schedule: &Schedule) -> String {
    let Schedule { sampler, steps, shift, timesteps } = schedule;
    let timesteps = if timesteps.is_empty() { String::new() } else { format!(" at {timesteps:?}") };
    format!("{steps} steps of {} with shift {shift}{timesteps}", sampler.word())
}

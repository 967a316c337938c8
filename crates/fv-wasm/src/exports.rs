//! The functions that JavaScript calls. Handles are numbers from 1; 0 is none.

use std::cell::RefCell;

use wasm_bindgen::prelude::wasm_bindgen;

use crate::answers::written;
use crate::problem::Problems;
use crate::session::{Handle, Session};

thread_local! {
    static SESSION: RefCell<Session> = RefCell::new(Session::default());
}

/// Asks the session of this thread.
fn ask<T>(question: impl FnOnce(&mut Session) -> Result<T, Problems>) -> String
where
    T: serde::Serialize,
{
    SESSION.with_borrow_mut(|session| written(question(session)))
}

/// The version of this estimator and what was built in.
#[wasm_bindgen]
pub fn version() -> String {
    let whole = cfg!(feature = "whole");
    format!("{{\"version\":\"{}\",\"sources\":\"{}\",\"whole\":{whole}}}", env!("CARGO_PKG_VERSION"), fv_estimate::SOURCES)
}

/// See [`Session::read_rules`].
#[wasm_bindgen(js_name = readRules)]
pub fn read_rules(text: &str) -> String {
    ask(|session| session.read_rules(text))
}

/// See [`Session::read_reference`].
#[wasm_bindgen(js_name = readReference)]
pub fn read_reference(text: &str) -> String {
    ask(|session| session.read_reference(text))
}

/// See [`Session::read_model`].
#[wasm_bindgen(js_name = readModel)]
pub fn read_model(text: &str) -> String {
    ask(|session| session.read_model(text))
}

/// See [`Session::read_device`].
#[wasm_bindgen(js_name = readDevice)]
pub fn read_device(text: &str) -> String {
    ask(|session| session.read_device(text))
}

/// See [`Session::forget_model`].
#[wasm_bindgen(js_name = forgetModel)]
pub fn forget_model(handle: Handle) {
    SESSION.with_borrow_mut(|session| session.forget_model(handle));
}

/// See [`Session::forget_device`].
#[wasm_bindgen(js_name = forgetDevice)]
pub fn forget_device(handle: Handle) {
    SESSION.with_borrow_mut(|session| session.forget_device(handle));
}

/// See [`Session::estimate`].
#[wasm_bindgen]
pub fn estimate(model: Handle, device: Handle, subject: &str, options: &str) -> String {
    ask(|session| session.estimate((model, device), subject, options))
}

/// See [`Session::summary`].
#[wasm_bindgen(js_name = estimateSummary)]
pub fn estimate_summary(model: Handle, device: Handle, subject: &str, options: &str) -> String {
    ask(|session| session.summary((model, device), subject, options))
}

/// See [`Session::grid`].
#[wasm_bindgen(js_name = estimateGrid)]
pub fn estimate_grid(model: Handle, device: Handle, subject: &str, options: &str) -> String {
    ask(|session| session.grid((model, device), subject, options))
}

/// See [`Session::assess`].
#[cfg(feature = "whole")]
#[wasm_bindgen]
pub fn assess(model: Handle, device: Handle, subject: &str, options: &str) -> String {
    ask(|session| session.assess((model, device), subject, options))
}

/// See [`Session::matches`].
#[cfg(feature = "whole")]
#[wasm_bindgen(js_name = "match")]
pub fn match_evidence(model: Handle, device: Handle, subject: &str, options: &str) -> String {
    ask(|session| session.matches((model, device), subject, options))
}

/// See [`Session::legal`].
#[wasm_bindgen]
pub fn legal(model: Handle, subject: &str) -> String {
    ask(|session| session.legal(model, subject))
}

/// See [`Session::recommend`].
#[cfg(feature = "whole")]
#[wasm_bindgen]
pub fn recommend(model: Handle, devices: &[Handle], subject: &str, options: &str) -> String {
    ask(|session| session.recommend(model, devices, subject, options))
}

/// See [`Session::largest`].
#[cfg(feature = "whole")]
#[wasm_bindgen]
pub fn largest(models: &[Handle], device: Handle, subject: &str, options: &str) -> String {
    ask(|session| session.largest(models, device, subject, options))
}

/// See [`Session::minimum`].
#[cfg(feature = "whole")]
#[wasm_bindgen]
pub fn minimum(model: Handle, device: Handle, devices: &[Handle], subject: &str, options: &str) -> String {
    ask(|session| session.minimum((model, device), devices, subject, options))
}

/// See [`Session::compare`].
#[cfg(feature = "whole")]
#[wasm_bindgen]
pub fn compare(models: &[Handle], devices: &[Handle], subject: &str, options: &str) -> String {
    ask(|session| session.compare(models, devices, subject, options))
}

/// See [`Session::plan`].
#[cfg(feature = "whole")]
#[wasm_bindgen]
pub fn plan(model: Handle, device: Handle, subject: &str, options: &str) -> String {
    ask(|session| session.plan(model, device, subject, options))
}

/// One of these functions by its name, natively: what the WebAssembly build is compared with. `devices` are those to choose from, `device`
/// is the one that is asked about.
#[cfg(feature = "whole")]
pub fn call(
    session: &mut Session,
    function: &str,
    models: &[Handle],
    device: Handle,
    devices: &[Handle],
    subject: &str,
    options: &str,
) -> String {
    let model = models.first().copied().unwrap_or(0);
    let on = (model, device);
    match function {
        "estimate" => written(session.estimate(on, subject, options)),
        "estimateSummary" => written(session.summary(on, subject, options)),
        "estimateGrid" => written(session.grid(on, subject, options)),
        "assess" => written(session.assess(on, subject, options)),
        "match" => written(session.matches(on, subject, options)),
        "legal" => written(session.legal(model, subject)),
        "recommend" => written(session.recommend(model, devices, subject, options)),
        "largest" => written(session.largest(models, device, subject, options)),
        "minimum" => written(session.minimum(on, devices, subject, options)),
        "compare" => written(session.compare(models, devices, subject, options)),
        "plan" => written(session.plan(model, device, subject, options)),
        other => crate::problem::json(vec![crate::problem::Problem::new(
            "unknown-function",
            "function",
            format!("no function is called {other}"),
        )]),
    }
}

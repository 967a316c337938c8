//! `--check` and `watch`.

use std::{
    io::Write,
    path::Path,
    sync::mpsc,
    time::{Duration, Instant},
};

use fv_catalog::{
    check::{Checked, Keep, check as check_sources},
    output::Format,
};
use notify::{EventKind, RecursiveMode, Watcher};

use crate::cli::{Context, Done, Origin, Stop, read};

pub(crate) fn check(context: &mut Context) -> Done {
    match context.origin()? {
        Origin::Authored(folder) => {
            let checked = check_sources(&read(&folder)?, Keep::Nothing);
            report(context, checked, "")
        }
        origin => {
            let catalog = context.catalog()?;
            let which = if matches!(origin, Origin::Embedded) { "the catalog built into this program" } else { "a compiled catalog" };
            let checked =
                Checked { findings: Vec::new(), capacity_models: catalog.models.len(), devices: catalog.devices.len(), catalog: None };
            report(context, checked, which)
        }
    }
}

fn report(context: &mut Context, checked: Checked, which: &str) -> Done {
    if !checked.findings.is_empty() {
        return Err(Stop::Findings(checked.findings));
    }
    if context.global.format != Format::Human {
        return context.findings(&[]);
    }
    let Checked { capacity_models, devices, .. } = checked;
    writeln!(context.out, "Validated {capacity_models} capacity model(s) and {devices} hardware variant(s)")?;
    if which.is_empty() { Ok(()) } else { Ok(writeln!(context.err, "{which}")?) }
}

/// Editors write a file in several steps; wait until they have stopped.
const QUIET: Duration = Duration::from_millis(100);

pub(crate) fn watch(context: &mut Context) -> Done {
    let folder = context.authored()?;
    let (sender, events) = mpsc::channel();
    let watching = |error: notify::Error| Stop::Usage(format!("cannot watch {}: {error}", folder.display()));
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !matches!(event.kind, EventKind::Access(_))) {
            let _ = sender.send(());
        }
    })
    .map_err(watching)?;
    watcher.watch(&folder, RecursiveMode::Recursive).map_err(watching)?;
    loop {
        check_once(context, &folder)?;
        if events.recv().is_err() {
            return Ok(());
        }
        let mut last = Instant::now();
        while last.elapsed() < QUIET {
            if events.recv_timeout(QUIET).is_ok() {
                last = Instant::now();
            }
        }
    }
}

fn check_once(context: &mut Context, folder: &Path) -> Done {
    let started = Instant::now();
    let sources = match read(folder) {
        Ok(sources) => sources,
        // A branch is being switched, say.
        Err(Stop::Usage(why)) => return Ok(writeln!(context.err, "waiting: {why}")?),
        Err(stop) => return Err(stop),
    };
    let checked = check_sources(&sources, Keep::Nothing);
    let took = started.elapsed().as_millis();
    match report(context, checked, &format!("in {took} ms")) {
        Err(Stop::Findings(findings)) => context.findings(&findings)?,
        other => other?,
    }
    Ok(context.out.flush()?)
}

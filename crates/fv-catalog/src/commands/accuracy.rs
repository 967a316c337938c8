//! `accuracy`.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use clap::Args;
use fv_catalog::{
    accuracy::{Accuracy, page},
    output::Format,
    sources, write,
};

use crate::cli::{self, Context, Done, Stop};

/// Tables of rows larger than this are refused: 64 MiB.
const MAX_ROWS_BYTES: u64 = 64 << 20;
/// Where the page is, beside the catalog.
const PAGE: &str = "docs/accuracy.md";

#[derive(Debug, Args)]
pub(crate) struct AccuracyArguments {
    /// Judge these CSV files instead of the recorded rows. Columns in any order: component, stage, case, `base_alloc`, `peak_alloc`,
    /// `peak_reserved`, `device_peak` (bytes); optional: runtime, precision (cast or loaded)
    #[arg(long, value_name = "FILE", num_args = 1.., action = clap::ArgAction::Append)]
    rows: Vec<PathBuf>,
    /// Exit 1 when a demanded limit is missed or, without --rows, when the page or the fitted spread is not current
    #[arg(long)]
    check: bool,
    /// Write the report as Markdown to this file (docs/accuracy.md is made so)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Fit the spread of peaks and the law of times to the recorded rows and write them below catalog/rules
    #[arg(long, conflicts_with_all = ["rows", "check", "out"])]
    fit: bool,
}

pub(crate) fn accuracy(context: &mut Context, arguments: &AccuracyArguments) -> Done {
    let format = context.global.format;
    if matches!(format, Format::Sarif | Format::Github) {
        return Err(Stop::Usage("this command writes `--format human`, `json` or `markdown`".into()));
    }
    let catalog = context.catalog()?;
    let accuracy = if arguments.rows.is_empty() {
        Accuracy::recorded(&catalog).map_err(Stop::Usage)?
    } else {
        let mut files = Vec::new();
        for path in &arguments.rows {
            let bytes = sources::bytes(path, MAX_ROWS_BYTES).map_err(|(_, why)| Stop::Usage(format!("{}: {why}", path.display())))?;
            let text = String::from_utf8(bytes).map_err(|_| Stop::Usage(format!("{}: not UTF-8 text", path.display())))?;
            files.push((path.display().to_string(), text));
        }
        Accuracy::of(&catalog, &files)
    };
    if arguments.fit {
        return fit(context, accuracy.fitted_files(&catalog).map_err(Stop::Usage)?);
    }
    let page = page::markdown(&accuracy);
    if arguments.check && arguments.rows.is_empty() {
        // The page shows what the files hold: what is wrong there comes first.
        let sources = cli::read(&context.authored()?)?;
        context.findings_beside(&accuracy.not_fitted(&catalog, &sources).map_err(Stop::Usage)?)?;
        check_page(context, arguments.out.as_deref(), &page)?;
    } else if let Some(path) = &arguments.out {
        write::replace(path, &page).map_err(|error| Stop::Usage(format!("{}: {error}", path.display())))?;
    }
    match format {
        Format::Json => context.value(&page::json(&accuracy))?,
        Format::Markdown => context.out.write_all(page.as_bytes())?,
        _ => context.out.write_all(fv_catalog::finding::visible_lines(&page::human(&accuracy)).as_bytes())?,
    }
    context.findings_beside(&accuracy.findings)?;
    if arguments.check && accuracy.limits().iter().any(|limit| !limit.holds) {
        return Err(Stop::No);
    }
    Ok(())
}

fn fit(context: &mut Context, files: BTreeMap<String, String>) -> Done {
    for (name, text) in files {
        let path = context.authored()?.join(&name);
        let failed = |error: &dyn std::fmt::Display| Stop::Usage(format!("{}: {error}", path.display()));
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            writeln!(context.out, "{} is current", path.display())?;
            continue;
        }
        write::replace(&path, &text).map_err(|error| failed(&error))?;
        writeln!(context.out, "{} written; `make docs` compiles it and renews the page", path.display())?;
    }
    Ok(())
}

fn check_page(context: &mut Context, out: Option<&Path>, page: &str) -> Done {
    let path = match out {
        Some(path) => path.to_owned(),
        None => context.authored()?.join("..").join(PAGE),
    };
    if fs::read_to_string(&path).ok().as_deref() != Some(page) {
        writeln!(context.err, "{}: not current; run `fv-catalog accuracy --out {PAGE}`", path.display())?;
        return Err(Stop::No);
    }
    Ok(())
}

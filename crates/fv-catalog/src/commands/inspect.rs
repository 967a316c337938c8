//! `inspect`.

use std::{io::Write, path::Path};

use fv_catalog::{
    inspect::{self, Difference},
    output::Format,
};
use serde_json::json;

use crate::cli::{Context, Done, Stop};

pub(crate) fn inspect(context: &mut Context, path: &Path, against: Option<&str>) -> Done {
    let report = inspect::inspect(path).map_err(|error| Stop::Usage(error.to_string()))?;
    let differences = match against {
        None => None,
        Some(id) => {
            let catalog = context.catalog()?;
            let components = fv_data::components(&catalog);
            let Some(component) = components.get(id) else {
                let near = fv_data::nearest(id, components.keys().copied());
                let hint = if near.is_empty() {
                    "`fv-catalog list components` shows them".to_owned()
                } else {
                    format!("did you mean {}?", near.join(", "))
                };
                return Err(Stop::Usage(format!("no component is called {id:?}; {hint}")));
            };
            Some(inspect::against(&report, &(*component).into()))
        }
    };
    let candidate = inspect::candidate_yaml(&report, &inspect::draft_name(path));
    if context.data_format()? == Format::Json {
        context.value(&json!({
            "version": 1,
            "report": report,
            "candidate": candidate.as_ref().ok(),
            "not_drafted": candidate.as_ref().err(),
            "against": against,
            "differences": differences,
        }))?;
    } else {
        write!(context.out, "{}", inspect::render(&report))?;
        match (against, differences.as_deref()) {
            (Some(id), Some([])) => writeln!(context.out, "\nagrees with `{id}`")?,
            (Some(id), Some(differences)) => {
                writeln!(context.out, "\ndifferences from `{id}`:\n")?;
                for Difference { field, catalog, found } in differences {
                    writeln!(context.out, "  {field}: the catalog says {catalog}, the files say {found}")?;
                }
            }
            _ => match candidate {
                Ok(entry) => write!(context.out, "\ncandidate entry, for review:\n\n{entry}")?,
                Err(why) => writeln!(context.out, "\nno candidate entry: {why}")?,
            },
        }
    }
    if differences.is_some_and(|differences| !differences.is_empty()) || !report.missing_shards.is_empty() { Err(Stop::No) } else { Ok(()) }
}

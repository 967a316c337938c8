//! `inspect`.

use std::{io::Write, path::Path};

use fv_catalog::{inspect, output::Format};
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
    if context.data_format()? == Format::Json {
        context.value(&json!({ "version": 1, "report": report, "against": against, "differences": differences }))?;
    } else {
        write!(context.out, "{}", inspect::render(&report))?;
        let id = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        if let Some(entry) = inspect::candidate_yaml(&report, &id).filter(|_| against.is_none()) {
            write!(context.out, "\ncandidate entry, for review:\n\n{entry}")?;
        }
        for difference in differences.iter().flatten() {
            writeln!(context.out, "{}: the catalog says {}, the files say {}", difference.field, difference.catalog, difference.found)?;
        }
        if let (Some(id), Some([])) = (against, differences.as_deref()) {
            writeln!(context.out, "agrees with `{id}`")?;
        }
    }
    if differences.is_some_and(|differences| !differences.is_empty()) || !report.missing_shards.is_empty() { Err(Stop::No) } else { Ok(()) }
}

//! Plans with given memory. This program measures nothing.

use fv_catalog::output::Format;
use fv_cli::plan::{PlanArguments, Session};

use crate::cli::{Context, Done};

pub(crate) fn plan(context: &mut Context, arguments: &PlanArguments) -> Done {
    let json = context.data_format()? == Format::Json;
    let store = context.store()?;
    let paints = context.global.color.paints();
    let mut session = Session { store: &store, out: &mut context.out, err: &mut context.err, json, paints, measure: None };
    Ok(fv_cli::plan::plan(&mut session, arguments)?)
}

//! `import-log`.

use std::{io::Write, path::PathBuf};

use clap::{Args, ValueEnum};
use fv_catalog::import_log::{self, Metric, Options};

use crate::cli::{Context, Done, Stop};

#[derive(Debug, Args)]
pub(crate) struct ImportLog {
    /// Stage logs, one for all ranks or one for each rank in order
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

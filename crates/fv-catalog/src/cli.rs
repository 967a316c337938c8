//! Arguments, exit codes and the two streams.

use std::{
    ffi::OsString,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum, builder::TypedValueParser};
use fv_catalog::{
    check::{Checked, Keep, check},
    finding::Finding,
    output::{self, Format},
    sources::{self, Sources},
};

use fv_cli::terminal::Color;

use crate::commands;

/// Will it fit? Estimates for video-diffusion models, and the catalog that they rest on.
#[derive(Debug, Parser)]
#[command(name = "fv-catalog", version, arg_required_else_help = true)]
#[command(group = ArgGroup::new("mode").args(["check", "preview"]))]
#[command(
    after_help = "Exit codes: 0 done, 1 findings or an answer that is no, 2 usage or I/O, 3 no usable device, 4 a plan that does not fit, 130 interrupted.\nWithout --catalog, the nearest catalog/ here or in a folder above is read, otherwise the catalog that is built in."
)]
struct Cli {
    /// Check the authored catalog and write nothing
    #[arg(long)]
    check: bool,
    /// Print a model with its references expanded
    #[arg(long, value_name = "ID")]
    preview: Option<String>,
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// The folder of an authored or compiled catalog
    #[arg(long, global = true, value_name = "DIR", env = "FV_CATALOG")]
    catalog: Option<OsString>,
    /// How results and findings are written
    #[arg(long, global = true, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,
    /// When to use colour; `auto` also honours `NO_COLOR`
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compile the catalog to versioned JSON
    Build {
        /// The folder for index.json, hardware.json, rules.json and models/
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Write the JSON Schemas of all files
    Schema {
        /// Compare instead of writing; exit 1 when a file is not current
        #[arg(long)]
        check: bool,
        /// The folder of the schemas
        #[arg(long, value_name = "DIR", default_value = "schemas")]
        out: PathBuf,
    },
    /// Write the generated pages of the documentation
    Docs {
        /// Compare instead of writing; exit 1 when a page is not current
        #[arg(long)]
        check: bool,
        /// The folder of the documentation
        #[arg(long, value_name = "DIR", default_value = "docs")]
        out: PathBuf,
    },
    /// List models, components or hardware
    List {
        /// What to list
        #[arg(value_enum)]
        what: commands::lookup::What,
    },
    /// Show one model, component or device
    Show {
        /// An id or alias
        id: String,
    },
    /// Resolve an id or alias, or rank what resembles the words
    Find {
        /// An id, an alias or words of a name
        #[arg(required = true)]
        query: Vec<String>,
    },
    /// Count parameters from local safetensors headers and print a candidate component
    Inspect {
        /// A safetensors file, an index, or a folder with either
        path: PathBuf,
        /// Compare with this component of the catalog
        #[arg(long, value_name = "ID")]
        against: Option<String>,
    },
    /// Make a memory record from stage logs
    ImportLog(commands::import::ImportLog),
    /// Insert a reference run into its manifest
    AddRun {
        /// YAML with `model: ID` and `run: {...}`
        file: PathBuf,
    },
    /// Compare what the rules derive with what was measured
    Accuracy(commands::accuracy::AccuracyArguments),
    /// Fit how far measured peaks lie from derived ones to completed reference runs
    Calibrate(commands::calibrate::CalibrateArguments),
    /// Check again whenever a file of the catalog is saved
    Watch,
    /// Say whether a request fits, where the memory goes and how sure that is
    Estimate(commands::estimate::EstimateArgs),
    /// Say where every byte of an estimate comes from
    Explain(commands::estimate::EstimateArgs),
    /// Judge the recorded runs of a model: which apply, which may, which do not
    Match(commands::estimate::MatchArgs),
    /// Estimate, and let runs that apply decide
    Assess(commands::estimate::AssessArgs),
    /// List the devices that a request fits on
    Recommend(commands::estimate::RecommendArgs),
    /// Find the largest legal clip on a device, of one model or of all
    Largest(commands::questions::LargestArgs),
    /// Find the smallest budget for a request
    Minimum(commands::questions::MinimumArgs),
    /// Put devices, deployments and runtimes side by side
    Compare(commands::questions::CompareArgs),
    /// Plan how a request is executed with given memory, and say why
    Plan(fv_cli::plan::PlanArguments),
    /// Estimate every combination of models, devices, sizes and settings into a file
    Sweep(commands::sweep::SweepArgs),
    /// Show the calculator in a browser, with this catalog
    Serve(commands::serve::ServeArgs),
    /// Print completions for a shell
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Findings, already worth showing in the chosen format: exit 1.
    Findings(Vec<Finding>),
    /// The answer is no or unknown, and has been said: exit 1.
    No,
    /// What only plans and sweeps end with: no device, a request that does not fit, an interruption.
    Other(fv_cli::stop::Stop),
    /// Wrong usage or I/O: exit 2.
    Usage(String),
    /// The reader of our output has gone: nothing more to do.
    Closed,
}

impl Stop {
    /// Without findings, which only this program has.
    fn shared(self) -> fv_cli::stop::Stop {
        use fv_cli::stop::Stop as Shared;
        match self {
            Self::Findings(_) | Self::No => Shared::No,
            Self::Usage(message) => Shared::Usage(message),
            Self::Other(stop) => stop,
            Self::Closed => Shared::Closed,
        }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Usage(error.to_string()) }
    }
}

impl From<fv_cli::stop::Stop> for Stop {
    fn from(stop: fv_cli::stop::Stop) -> Self {
        use fv_cli::stop::Stop as Shared;
        match stop {
            Shared::No => Self::No,
            Shared::Usage(message) => Self::Usage(message),
            Shared::Closed => Self::Closed,
            only => Self::Other(only),
        }
    }
}

impl From<fv_data::ReadError> for Stop {
    fn from(error: fv_data::ReadError) -> Self {
        Self::Usage(error.to_string())
    }
}

pub(crate) type Done = Result<(), Stop>;

/// A catalog, where it comes from and where output goes.
pub(crate) struct Context {
    pub(crate) global: Global,
    pub(crate) out: Box<dyn Write>,
    pub(crate) err: Box<dyn Write>,
    color: bool,
}

/// Where the catalog comes from.
pub(crate) enum Origin {
    Authored(PathBuf),
    Compiled(PathBuf),
    Embedded,
}

pub(crate) fn run() -> ExitCode {
    let cli = match parse().and_then(one_mode) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers; everything else is wrong usage.
            let text = error.render();
            let written = if error.use_stderr() {
                write!(anstream::stderr(), "{}", text.ansi())
            } else {
                write!(anstream::stdout(), "{}", text.ansi())
            };
            return match written {
                Err(io) if io.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(2),
                _ => ExitCode::from(if error.use_stderr() { 2 } else { 0 }),
            };
        }
    };
    let color = match cli.global.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
    };
    let mut context =
        Context { global: cli.global.clone(), out: Box::new(io::BufWriter::new(io::stdout())), err: Box::new(io::stderr()), color };
    if cli.global.catalog.is_none() && Path::new("catalog").is_dir() && !sources::is_catalog(Path::new("catalog")) {
        let _ = writeln!(context.err, "note: ./catalog holds no authored catalog; the one built into this program is used");
    }
    let done = dispatch(cli, &mut context).and_then(|()| context.out.flush().map_err(Stop::from));
    let code = match done {
        Ok(()) => 0,
        Err(Stop::Findings(findings)) => match context.findings(&findings) {
            Ok(()) | Err(Stop::Closed) => 1,
            Err(_) => 2,
        },
        Err(stop) => stop.shared().report(&mut context.err),
    };
    let _ = context.out.flush();
    ExitCode::from(code)
}

/// The arguments. Each command takes, and lists, the formats that it writes; before a command any may stand, since it is not
/// known yet.
fn command() -> clap::Command {
    let format = |formats: &[Format]| {
        // Their names alone: what they hold is a matter of the command.
        let bare = |value: clap::builder::PossibleValue| value.help(clap::builder::Resettable::Reset);
        let names: Vec<_> = formats.iter().filter_map(ValueEnum::to_possible_value).map(bare).collect();
        let parser = clap::builder::PossibleValuesParser::new(names).try_map(|name| Format::from_str(&name, false));
        clap::Arg::new("format").long("format").value_name("FORMAT").global(true).value_parser(parser).help("How results are written")
    };
    let with = |command: clap::Command| match command.get_name() {
        // Without one the name of the file says which. What this build does not write is hidden, and said when it is asked for.
        "sweep" => command.arg(format(&[Format::Csv, Format::Jsonl, Format::Parquet])),
        "accuracy" => command.arg(format(&[Format::Human, Format::Json, Format::Markdown]).default_value("human")),
        "build" | "watch" | "add-run" => {
            command.arg(format(&[Format::Human, Format::Json, Format::Github, Format::Sarif]).default_value("human"))
        }
        _ => command.arg(format(&[Format::Human, Format::Json]).default_value("human")),
    };
    <Cli as clap::CommandFactory>::command().mut_subcommands(with)
}

fn parse() -> Result<Cli, clap::Error> {
    use clap::FromArgMatches;
    let mut command = command();
    let parsed = command.try_get_matches_from_mut(std::env::args_os()).and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| shortened(error.format(&mut command)))
}

/// The error with what was written of it cut where nobody reads on.
fn shortened(mut error: clap::Error) -> clap::Error {
    use clap::error::{ContextKind, ContextValue};
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
        && value.chars().count() > LONGEST
    {
        let value: String = value.chars().take(LONGEST).chain("...".chars()).collect();
        error.insert(ContextKind::InvalidValue, ContextValue::String(value));
    }
    error
}

/// Characters of a value that a message repeats.
const LONGEST: usize = 60;

/// Exactly one of `--check`, `--preview` and a command. Options of every command may stand before it.
fn one_mode(cli: Cli) -> Result<Cli, clap::Error> {
    use clap::error::ErrorKind;
    let mode = cli.check || cli.preview.is_some();
    let refuse = |kind, message: &str| Err(<Cli as clap::CommandFactory>::command().error(kind, message));
    match (mode, &cli.command) {
        (true, Some(_)) => refuse(ErrorKind::ArgumentConflict, "--check and --preview stand alone, without a command"),
        (false, None) => refuse(ErrorKind::MissingSubcommand, "say what to do: --check, --preview ID or a command"),
        _ => Ok(cli),
    }
}

fn dispatch(cli: Cli, context: &mut Context) -> Done {
    let Some(command) = cli.command else {
        return match cli.preview {
            Some(id) => commands::lookup::preview(context, &id),
            None => commands::check::check(context),
        };
    };
    match command {
        Command::Build { out } => commands::build::build(context, &out),
        Command::Schema { check, out } => commands::build::schema(context, check, &out),
        Command::Docs { check, out } => commands::docs::docs(context, check, &out),
        Command::List { what } => commands::lookup::list(context, what),
        Command::Show { id } => commands::lookup::show(context, &id),
        Command::Find { query } => commands::lookup::find(context, &query.join(" ")),
        Command::Inspect { path, against } => commands::inspect::inspect(context, &path, against.as_deref()),
        Command::ImportLog(arguments) => commands::import::import_log(context, &arguments),
        Command::AddRun { file } => commands::add_run::add_run(context, &file),
        Command::Accuracy(arguments) => commands::accuracy::accuracy(context, &arguments),
        Command::Calibrate(arguments) => commands::calibrate::calibrate(context, &arguments),
        Command::Watch => commands::check::watch(context),
        Command::Estimate(arguments) => commands::estimate::estimate(context, &arguments),
        Command::Explain(arguments) => commands::estimate::explain(context, &arguments),
        Command::Match(arguments) => commands::estimate::match_runs(context, &arguments),
        Command::Assess(arguments) => commands::estimate::assess(context, &arguments),
        Command::Recommend(arguments) => commands::estimate::recommend(context, &arguments),
        Command::Largest(arguments) => commands::questions::largest(context, &arguments),
        Command::Minimum(arguments) => commands::questions::minimum(context, &arguments),
        Command::Compare(arguments) => commands::questions::compare(context, &arguments),
        Command::Plan(arguments) => commands::plan::plan(context, &arguments),
        Command::Sweep(arguments) => commands::sweep::sweep(context, &arguments),
        Command::Serve(arguments) => commands::serve::serve(context, &arguments),
        Command::Completions { shell } => completions(context, shell),
    }
}

fn completions(context: &mut Context, shell: clap_complete::Shell) -> Done {
    let script = fv_cli::terminal::completions(command(), shell);
    Ok(context.out.write_all(script.as_bytes())?)
}

impl Context {
    /// Where the catalog comes from.
    pub(crate) fn origin(&self) -> Result<Origin, Stop> {
        // An empty variable is an unset one.
        let Some(folder) = self.global.catalog.as_ref().filter(|folder| !folder.is_empty()) else {
            return Ok(nearest_catalog().map_or(Origin::Embedded, Origin::Authored));
        };
        let folder = PathBuf::from(folder);
        if !folder.is_dir() {
            let why = if folder.exists() { "not a folder" } else { "no such folder" };
            return Err(Stop::Usage(format!("{}: {why}", folder.display())));
        }
        let authored = sources::is_catalog(&folder) || folder.join("models").exists();
        if folder.join("index.json").exists() && !folder.join(sources::SHARED[0]).exists() {
            return Ok(Origin::Compiled(folder));
        }
        if folder.join("hardware.json").exists() {
            return Err(Stop::Usage(format!("{}: a compiled catalog without its index.json; build it again", folder.display())));
        }
        if authored {
            return Ok(Origin::Authored(folder));
        }
        Err(Stop::Usage(format!("{}: not a catalog; it holds neither hardware.yaml and models/, nor index.json", folder.display())))
    }

    /// The folder of the authored catalog, for commands that need its texts.
    pub(crate) fn authored(&self) -> Result<PathBuf, Stop> {
        match self.origin()? {
            Origin::Authored(folder) => Ok(folder),
            _ => Err(Stop::Usage("this needs an authored catalog: run it beside `catalog/`, or give --catalog DIR".into())),
        }
    }

    /// The compiled catalog, wherever it comes from.
    pub(crate) fn catalog(&self) -> Result<fv_data::Catalog, Stop> {
        match self.origin()? {
            Origin::Authored(folder) => {
                let Checked { findings, catalog, .. } = check(&read(&folder)?, Keep::Catalog);
                catalog.ok_or(Stop::Findings(findings))
            }
            Origin::Compiled(folder) => {
                let text = |path: &str| std::fs::read(folder.join(path)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                fv_data::Catalog::read(text).map_err(|error| Stop::Usage(format!("{}/{error}", folder.display())))
            }
            Origin::Embedded => Ok(fv_data::Catalog::embedded()?),
        }
    }

    /// Writes findings: for people to the error stream, for machines to the output stream.
    pub(crate) fn findings(&mut self, findings: &[Finding]) -> Done {
        let Self { global, out, err, color } = self;
        let stream = if matches!(global.format, Format::Json | Format::Github | Format::Sarif) { out } else { err };
        Ok(output::write(global.format, findings, *color, stream)?)
    }

    /// Writes findings beside a report, whose stream they would make unreadable for a machine; any is the answer no.
    pub(crate) fn findings_beside(&mut self, findings: &[Finding]) -> Done {
        if findings.is_empty() {
            return Ok(());
        }
        output::write(Format::Human, findings, self.color, &mut self.err)?;
        Err(Stop::No)
    }

    /// Writes a value as YAML for people or as JSON.
    pub(crate) fn value(&mut self, value: &impl serde::Serialize) -> Done {
        let text = match self.data_format()? {
            Format::Json => fv_catalog::write::json(value),
            _ => serde_yaml::to_string(value).map_err(|error| Stop::Usage(error.to_string()))?,
        };
        Ok(self.out.write_all(text.as_bytes())?)
    }

    /// The format, for commands whose results are not findings.
    pub(crate) fn data_format(&self) -> Result<Format, Stop> {
        match self.global.format {
            Format::Github | Format::Sarif | Format::Markdown | Format::Csv | Format::Jsonl | Format::Parquet => {
                Err(Stop::Usage("this command writes `--format human` or `--format json`".into()))
            }
            format => Ok(format),
        }
    }
}

/// `catalog/` here or in a folder above, as far as a repository may be deep.
fn nearest_catalog() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let depth = here.ancestors().count().min(16);
    (0..depth).map(|up| PathBuf::from("../".repeat(up)).join("catalog")).find(|folder| sources::is_catalog(folder))
}

/// Reads an authored catalog.
pub(crate) fn read(folder: &Path) -> Result<Sources, Stop> {
    Sources::read(folder).map_err(|error| Stop::Usage(format!("{}: {error}", folder.display())))
}

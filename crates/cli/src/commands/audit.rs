//! `dpsgd audit`: attacks what would be trained, or trains a run again with canaries.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use dpsgd::audit::{Effort, Options};
use dpsgd::canaries::{CanaryKind, TrainingAudit};
use dpsgd::inputs::RunData;
use dpsgd::report::audit::AuditReport;
use dpsgd::report::{Sizes, json as written};
use dpsgd::train::directory::write_atomically;
use dpsgd::{Error, RawSettings, SavedRun};
use serde_json::{Value, json};

use crate::failure::{Failure, at};
use crate::print;
use crate::terminal::{Rounds, tell};

/// The flags of `dpsgd audit`.
#[derive(Args)]
pub struct AuditCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run the production code on worst-case data and compare its leakage with the claim
    Mechanism(Box<MechanismAudit>),
    /// Train a run again with canaries and say what they prove about its leakage
    Training(Training),
}

impl AuditCommand {
    /// Audits and prints the result.
    pub fn run(self) -> Result<(), Failure> {
        match self.what {
            What::Mechanism(command) => command.run(),
            What::Training(command) => command.run(),
        }
    }
}

/// The flags of `dpsgd audit mechanism`: those of `dpsgd train`, and how much to run.
#[derive(Args)]
#[command(after_help = "\
Any `dpsgd train …` becomes an audit of what it would run by writing `dpsgd audit mechanism …`: the \
production sampler, clip, noise and rounds run many times on two neighbouring data sets of canary gradients, \
and the best tests of both adversaries are compared with the guarantee. N and the number of rounds are \
shortened so that thousands of runs fit into the time; the claim is that of the shortened run. With \
--samples the data are not read.

Exit code: 0 nothing contradicts the claim, 1 a contradiction, 2 bad input. A correct implementation is \
contradicted with probability at most 1e-6; with several phases, each is audited as a run of its own, and this \
holds for each.

Examples:
  dpsgd audit mechanism --samples 60000
  dpsgd audit mechanism --config runs/mine/config.toml --out audit
  dpsgd audit mechanism --samples 60000 --sampling shuffle --groups 16 --group-size 64 --sigma 2 --seconds 20
  dpsgd audit mechanism --samples 60000 --sampling poisson --groups 600 \\
      --noise-multiplier 1 --trials 20000 --json")]
pub struct MechanismAudit {
    #[command(flatten)]
    settings: RawSettings,
    /// Settings from a TOML file as `dpsgd train` takes it; flags win
    #[arg(long, value_name = "FILE.toml", help_heading = "The audit")]
    config: Option<PathBuf>,
    /// How long the trials may take; the clock ends them [default: 60]
    #[arg(long, value_name = "s", allow_hyphen_values = true, help_heading = "The audit")]
    seconds: Option<f64>,
    /// Trials on each of the two data sets, instead of --seconds
    #[arg(long, value_name = "n", help_heading = "The audit", conflicts_with = "seconds")]
    trials: Option<u64>,
    /// Write audit.html and audit.json into this directory
    #[arg(long, value_name = "DIR", help_heading = "The audit")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of a statement
    #[arg(long, help_heading = "The audit")]
    json: bool,
}

/// The longest audit: a day.
const LONGEST: f64 = 86_400.0;

impl MechanismAudit {
    fn effort(&self) -> Result<Effort, Failure> {
        if let Some(trials) = self.trials {
            return Ok(Effort::Trials(trials));
        }
        let seconds = self.seconds.unwrap_or(60.0);
        if !(1.0..=LONGEST).contains(&seconds) {
            return Err(Failure::Input(format!("seconds = {seconds}: between 1 and {LONGEST}")));
        }
        Ok(Effort::Time(Duration::from_secs_f64(seconds)))
    }

    fn run(self) -> Result<(), Failure> {
        let effort = self.effort()?;
        let raw = self.settings.with_file(self.config.as_deref())?.anchored();
        let settings = match raw.samples {
            Some(_) => raw.resolve()?,
            None => raw.resolve_for(RunData::load(&raw)?.population)?,
        };
        let plan = settings.plan()?;
        if let Effort::Time(time) = effort {
            tell(&format!("auditing for {} s on {} threads", time.as_secs(), settings.threads));
        }
        let options =
            Options { effort, seed: settings.seed, threads: settings.threads, delta: settings.budget.delta };
        let audits = dpsgd::audit::audit_phases(&plan, &options).map_err(Error::from)?;
        let several = audits.len() > 1;
        let mut contradictions = Vec::new();
        let mut values = Vec::new();
        for (i, found) in audits.into_iter().enumerate() {
            // The claim for the whole run, where it is one phase; that of the phase elsewhere.
            let (configured, sizes) = match several {
                false => {
                    let sizes = Sizes { samples: settings.samples, groups: settings.groups };
                    (settings.mechanism.clone(), sizes)
                }
                true => (found.configured.clone(), Sizes::default()),
            };
            let report = AuditReport::new(configured, sizes, found, settings.seed.is_some());
            let (value, name) = (report.json(), if several { &format!("audit-{}", i + 1) } else { "audit" });
            if let Some(out) = &self.out {
                write_both(out, name, &report.html(), &value)?;
            }
            if !self.json {
                let heading = if several { format!("PHASE {}\n\n", i + 1) } else { String::new() };
                print(&format!("{heading}{}", report.statement()))?;
            }
            contradictions.extend(report.contradictions());
            values.push(value);
        }
        if self.json {
            let value = if several { json!({ "phases": values }) } else { values.remove(0) };
            print(&written::line(&value))?;
        }
        match contradictions.as_slice() {
            [] => Ok(()),
            found => Err(Failure::Other(format!("CONTRADICTION: {}", found.join("; ")))),
        }
    }
}

/// Writes `NAME.html` and `NAME.json` into a directory.
fn write_both(out: &Path, name: &str, page: &str, value: &Value) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(out).map_err(at(out))?;
    let html = out.join(format!("{name}.html"));
    write_atomically(&html, page.as_bytes()).map_err(at(&html))?;
    let path = out.join(format!("{name}.json"));
    write_atomically(&path, written::line(value).as_bytes()).map_err(at(&path))?;
    Ok(html)
}

/// The flags of `dpsgd audit training`.
#[derive(Args)]
#[command(after_help = "\
A second model is trained with the settings of the run and thrown away; the run itself is not touched. In it \
some training samples are replaced by canaries, each in one of two forms by a fair coin. From what the \
training releases the coins are guessed, and the number of right guesses gives a lower bound on ε (Steinke, \
Nasr, Jagielski 2023) and on µ.

What is printed is a function of that second run: publishing it costs the guarantee of the run once more.

Examples:
  dpsgd audit training runs/mnist-lenet5-1
  dpsgd audit training runs/mnist-lenet5-1 --kind label --canaries 2000 --out audit")]
struct Training {
    /// The directory of the run
    directory: PathBuf,
    /// Canaries
    #[arg(long, value_name = "n", default_value_t = 1000)]
    canaries: u64,
    /// What a canary is, and what the auditor sees
    #[arg(long, value_enum, default_value_t = CanaryKind::Gradient)]
    kind: CanaryKind,
    /// The probability with which the lower bounds hold
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    confidence: f64,
    /// Write audit-training.html and audit-training.json here
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Threads; the result does not depend on it [default: all cores]
    #[arg(long, value_name = "n")]
    threads: Option<usize>,
    /// Print one JSON object instead of a statement
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

impl Training {
    fn run(self) -> Result<(), Failure> {
        let run = SavedRun::open(&self.directory)?;
        let audit = TrainingAudit { canaries: self.canaries, kind: self.kind, confidence: self.confidence };
        let mut bar = Rounds::new("training with canaries", self.quiet);
        let result = audit.run(&run, self.threads, &mut bar)?;
        let value = result.json();
        if let Some(out) = &self.out {
            let page = write_both(out, "audit-training", &result.html(), &value)?;
            if !self.quiet {
                tell(&format!("wrote {}", page.display()));
            }
        }
        if self.json {
            print(&written::line(&value))?
        } else {
            print(&result.statement())?
        }
        match result.contradiction() {
            None => Ok(()),
            Some(why) => Err(Failure::Other(why)),
        }
    }
}

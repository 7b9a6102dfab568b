//! `dpsgd audit`: `training` trains a run again with canaries; `mechanism` attacks what `dpsgd train` would run, and compares what it finds with the claim.

mod page;
mod statement;
mod training;
mod value;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use dpsgd_audit::{AuditError, Effort, Options};
use dpsgd_privacy::{Adversary, adversary};
use dpsgd_train::directory::write_atomically;

use crate::settings::{Question, Run};
use crate::train::inputs::{Inputs, releases};
use crate::train::mechanism::{Settled, Size, settled};
use crate::train::progress::tell;
use crate::train::settings::TrainSettings;
use crate::train::{algorithm, defaults};
use crate::{Failure, account, json, print};

// What is audited must be the trainer that trains: the copy into which the audit's tests inject faults must never
// be part of this command. See `dpsgd_train::fault` for why no feature can bring it in.
const _: () = assert!(!dpsgd_train::fault::POSSIBLE);

/// The flags of `dpsgd audit`.
#[derive(Args)]
pub struct Audit {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run the production code on worst-case data and compare its leakage with the claim
    Mechanism(Box<MechanismAudit>),
    /// Train a run again with canaries and say what they prove about its leakage
    Training(training::Training),
}

/// The flags of `dpsgd audit mechanism`: those of `dpsgd train`, and how much to run.
#[derive(Args)]
#[command(after_help = "\
Any `dpsgd train …` becomes an audit of what it would run by writing `dpsgd audit mechanism …`: the production \
sampler, clip, noise and rounds run many times on two neighbouring data sets of canary gradients, and the best tests \
of both adversaries are compared with the guarantee. N and the number of rounds are shortened so that thousands \
of runs fit into the time; the claim is that of the shortened run.

Exit code: 0 nothing contradicts the claim, 1 a contradiction, 2 bad input. A right implementation is contradicted \
with probability at most 1e-6.

Examples:
  dpsgd audit mechanism --samples 60000
  dpsgd audit mechanism --config runs/mine/config.toml --out audit
  dpsgd audit mechanism --samples 60000 --sampling shuffle --groups 16 --group-size 64 --sigma 2 --seconds 20
  dpsgd audit mechanism --samples 60000 --sampling poisson --groups 600 --noise-multiplier 1 --trials 20000 --json")]
pub struct MechanismAudit {
    #[command(flatten)]
    settings: TrainSettings,
    /// Settings from a TOML file as `dpsgd train` takes it; flags win
    #[arg(long, value_name = "FILE.toml", help_heading = "The audit")]
    config: Option<PathBuf>,
    /// N, instead of that of the data, which are then not read
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "The audit")]
    samples: Option<u64>,
    /// About how long the trials may take [default: 60]
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

/// What is said about an audit.
pub struct Report {
    /// The run as configured.
    pub configured: Run,
    /// ε or δ claimed about it, for each adversary that a theorem covers.
    pub claims: Vec<(Adversary, f64)>,
    /// The run that was audited.
    pub audited: Run,
    /// What was found.
    pub found: dpsgd_audit::Audit,
    /// Whether the keys can be repeated.
    pub seeded: bool,
}

impl Audit {
    /// Audits and prints the result.
    pub fn run(self) -> Result<(), Failure> {
        match self.what {
            What::Mechanism(command) => command.run(),
            What::Training(command) => command.run(),
        }
    }
}

impl From<AuditError> for Failure {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Entropy(_)
            | AuditError::Threads(..)
            | AuditError::Ledger(_)
            | AuditError::Round(_) => Failure::Machine(error.to_string()),
            _ => Failure::Input(error.to_string()),
        }
    }
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
        let given = self.settings.layered(self.config.as_ref())?.anchored();
        let (given, size) = match self.samples {
            Some(samples) => (given, Size { samples, public: true }),
            None => {
                let inputs = Inputs::load(&given)?;
                (inputs.settle(&given)?, inputs.size)
            }
        };
        let Settled { settings, run, .. } = settled(&given, size, &releases(&given))?;
        let (settings, plan) = algorithm::planned(&settings, &run.mechanism)?;
        let threads = settings.threads.unwrap_or_else(algorithm::all_cores);
        let delta = settings.delta.unwrap_or(defaults::DELTA);
        if let Effort::Time(time) = effort {
            tell(&format!("auditing for about {} s on {threads} threads", time.as_secs()));
        }
        let found = dpsgd_audit::audit(&plan, &Options { effort, seed: settings.seed, threads, delta })?;
        let report = Report::new(run, found, settings.seed.is_some());
        let value = value::of(&report);
        if let Some(out) = &self.out {
            let failed = |error: std::io::Error| Failure::Machine(format!("{}: {error}", out.display()));
            std::fs::create_dir_all(out).map_err(failed)?;
            for (name, text) in [("audit.html", page::of(&report)), ("audit.json", json::line(&value))] {
                write_atomically(&out.join(name), text.as_bytes()).map_err(failed)?;
            }
        }
        if self.json {
            print(&json::line(&value))?
        } else {
            print(&statement::of(&report))?
        }
        match report.contradictions().as_slice() {
            [] => Ok(()),
            found => Err(Failure::Machine(format!("CONTRADICTION: {}", found.join("; ")))),
        }
    }
}

impl Report {
    fn new(configured: Run, found: dpsgd_audit::Audit, seeded: bool) -> Self {
        let claims = [Adversary::A1, Adversary::A0].into_iter().filter_map(|adversary| {
            let curve = adversary::curve(&configured.mechanism, adversary).ok()?;
            Some((adversary, account::answer(&*curve, configured.question).ok()?.upper))
        });
        Self {
            claims: claims.collect(),
            audited: Run {
                config: found.audited.config(),
                mechanism: found.audited.clone(),
                sizes: (Some(found.samples as u64), configured.sizes.1),
                question: Question::Epsilon { delta: found.delta },
                alphas: Vec::new(),
            },
            configured,
            found,
            seeded,
        }
    }

    /// Everything that contradicts the claim, in a sentence each.
    pub fn contradictions(&self) -> Vec<String> {
        let attacks = self.found.attacks.iter().filter(|attack| attack.contradicts()).map(|attack| {
            format!(
                "the attack of {} is better than the guarantee allows: at least µ = {:.4} leaks, {:.4} is claimed there",
                attack.adversary.name(),
                attack.mu.0,
                attack.mu.1
            )
        });
        let checks = self.found.checks.iter().filter(|check| check.failed());
        attacks.chain(checks.map(|check| format!("check {} failed: {}", check.name, check.detail))).collect()
    }
}

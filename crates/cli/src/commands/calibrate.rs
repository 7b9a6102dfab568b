//! `dpsgd calibrate`: the setting that meets a target, with the certified value it reaches.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dpsgd::privacy::account::Question;
use dpsgd::privacy::calibrate::{Target, epochs, groups, sigma};
use dpsgd::privacy::mechanism::Mechanism;
use dpsgd::privacy::{Adversary, Interval, PrivacyError, adversary};
use dpsgd::report::rounding::up;
use dpsgd::report::text::{number, percent, subscript, wrapped};
use dpsgd::report::{Sizes, json};
use dpsgd::{RawSettings, Settings};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::print;
use crate::terminal::warn_of_delta;

/// The flags of `dpsgd calibrate`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  dpsgd calibrate --target-epsilon 3 --delta 1e-5 --solve sigma --groups 1024 --epochs 15
  dpsgd calibrate --target-epsilon 1 --delta 1e-5 --solve epochs --sigma 2
  dpsgd calibrate --target-mu 0.5 --solve groups --epochs 30 --sigma 1 --json
  dpsgd calibrate --target-epsilon 8 --solve sigma --sampling shuffle --adversary A1")]
pub struct CalibrateCommand {
    /// What to find: the smallest sigma, the most epochs, or the most groups a round
    #[arg(long, value_enum, help_heading = "The target")]
    solve: Solve,
    /// The µ of Gaussian DP to meet, instead of --target-epsilon
    #[arg(long, value_name = "µ", allow_hyphen_values = true, help_heading = "The target")]
    target_mu: Option<f64>,
    #[command(flatten)]
    settings: RawSettings,
    /// Settings from a TOML file; flags win
    #[arg(long, value_name = "FILE.toml", help_heading = "Input and output")]
    config: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, help_heading = "Input and output")]
    json: bool,
}

/// `--solve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Solve {
    /// The smallest σ, the same in every phase
    Sigma,
    /// The most epochs
    Epochs,
    /// The most groups a round, at the given epochs
    Groups,
}

impl Solve {
    fn name(self) -> &'static str {
        match self {
            Solve::Sigma => "sigma",
            Solve::Epochs => "epochs",
            Solve::Groups => "groups",
        }
    }

    /// The flags that the found value replaces.
    fn replaced(self) -> &'static [&'static str] {
        match self {
            Solve::Sigma => &["sigma", "noise-multiplier"],
            Solve::Epochs => &["epochs", "rounds"],
            Solve::Groups => &["groups"],
        }
    }

    /// Leaves open what is solved for, and refuses what has to be given.
    fn prepared(self, mut raw: RawSettings) -> Result<RawSettings, Failure> {
        (raw.target_epsilon, raw.max_epsilon) = (None, None);
        match self {
            // Any noise will do: it is replaced.
            Solve::Sigma => {
                (raw.sigma, raw.noise_multiplier) = (Some(1.0), None);
                for phase in &mut raw.phase {
                    (phase.sigma, phase.noise_multiplier) = (None, None);
                }
            }
            Solve::Epochs => {
                (raw.epochs, raw.rounds) = (Some(1), None);
                require_noise(&raw, self)?;
            }
            Solve::Groups => {
                raw.groups = Some(1);
                require_noise(&raw, self)?;
            }
        }
        Ok(raw)
    }
}

fn require_noise(raw: &RawSettings, solve: Solve) -> Result<(), Failure> {
    let given = |raw: &RawSettings| raw.sigma.is_some() || raw.noise_multiplier.is_some();
    if given(raw) || (!raw.phase.is_empty() && raw.phase.iter().all(given)) {
        return Ok(());
    }
    Err(Failure::Input(format!("sigma: give it, or --noise-multiplier, to solve for {}", solve.name())))
}

/// What was found.
struct Found {
    /// As it is written after the flag.
    value: String,
    number: Value,
    reached: Interval,
    mechanism: Mechanism,
    /// ε at δ, which a target for µ does not state itself.
    epsilon: Interval,
    tradeoff: Vec<(f64, Interval)>,
}

impl CalibrateCommand {
    /// Solves and prints the result.
    pub fn run(self) -> Result<(), Failure> {
        if self.settings.epsilon.is_some() {
            return Err(Failure::Input("--epsilon: give the ε to meet as --target-epsilon".into()));
        }
        // A target on the command line goes with a σ there: only one of the two is solved for.
        let target_epsilon = self.settings.target_epsilon;
        let flags = RawSettings { target_epsilon: None, ..self.settings.clone() };
        let raw = flags.with_file(self.config.as_deref())?;
        let target_epsilon = target_epsilon.or(raw.target_epsilon);
        let settings = self.solve.prepared(raw)?.resolve()?;
        let (target, delta) = self.target(&settings, target_epsilon)?;
        warn_of_delta(&settings);
        let found = self.found(&settings, target, delta)?;
        if self.json {
            return print(&json::line(&self.value(&settings, &found, target, delta)));
        }
        print(&self.statement(&settings, &flags, &found, target, delta)?)
    }

    fn target(&self, settings: &Settings, target_epsilon: Option<f64>) -> Result<(Target, f64), Failure> {
        let Question::Epsilon { delta } = settings.question else {
            return Err(Failure::Input(
                "epsilon in the file: calibrating needs delta and --target-epsilon".into(),
            ));
        };
        match (target_epsilon, self.target_mu) {
            (Some(epsilon), None) => Ok((Target::Epsilon { epsilon, delta }, delta)),
            (None, Some(mu)) => Ok((Target::Mu(mu), delta)),
            (Some(_), Some(_)) => Err(Failure::Input(
                "--target-epsilon and --target-mu are both given: give one of them".into(),
            )),
            (None, None) => {
                Err(Failure::Input("the target is missing: give --target-epsilon or --target-mu".into()))
            }
        }
    }

    fn found(&self, settings: &Settings, target: Target, delta: f64) -> Result<Found, PrivacyError> {
        let (config, who) = (settings.run_config(), settings.budget.adversary);
        let (value, number, reached, mechanism) = match self.solve {
            Solve::Sigma => {
                let found = sigma(config, who, target)?;
                (number(found.value), json!(found.value), found.reached, found.mechanism)
            }
            Solve::Epochs => {
                let found = epochs(config, who, target)?;
                (found.value.to_string(), json!(found.value), found.reached, found.mechanism)
            }
            Solve::Groups => {
                let found = groups(config, who, target)?;
                (found.value.to_string(), json!(found.value), found.reached, found.mechanism)
            }
        };
        // Accounted for once more, as `dpsgd account` would: the ε and the attacks of the run that was found.
        let curve = adversary::curve(&mechanism, who)?;
        let epsilon = match target {
            Target::Epsilon { .. } => reached,
            Target::Mu(_) => curve.epsilon(delta)?,
        };
        let tradeoff = settings.alphas.iter().map(|&alpha| Ok((alpha, curve.beta(alpha)?)));
        let tradeoff = tradeoff.collect::<Result<Vec<_>, PrivacyError>>()?;
        Ok(Found { value, number, reached, mechanism, epsilon, tradeoff })
    }

    fn value(&self, settings: &Settings, found: &Found, target: Target, delta: f64) -> Value {
        let phase = found.mechanism.phases()[0];
        let mut value = Map::new();
        value.insert(self.solve.name().into(), found.number.clone());
        if self.solve == Solve::Sigma {
            value.insert("noise_multiplier".into(), json!(phase.noise_multiplier()));
        } else {
            value.insert("rounds".into(), json!(phase.rounds()));
        }
        value.insert("epsilon".into(), json::interval(found.epsilon));
        value.insert("delta".into(), json!(delta));
        if let Target::Mu(_) = target {
            value.insert("mu".into(), json::interval(found.reached));
        }
        value.insert("adversary".into(), json!(settings.budget.adversary.name()));
        value.insert("tradeoff".into(), json::tradeoff(&found.tradeoff, &settings.alphas));
        let groups = if self.solve == Solve::Groups { None } else { settings.groups };
        let sizes = Sizes { samples: settings.samples, groups };
        value.insert("mechanism".into(), json::mechanism(&found.mechanism, sizes));
        Value::Object(value)
    }

    fn statement(
        &self,
        settings: &Settings,
        flags: &RawSettings,
        found: &Found,
        target: Target,
        delta: f64,
    ) -> Result<String, Failure> {
        let phase = found.mechanism.phases()[0];
        let mut text = match self.solve {
            Solve::Sigma => format!(
                "smallest σ = {} (noise multiplier 2σ = {})\n",
                found.value,
                number(phase.noise_multiplier())
            ),
            Solve::Epochs => format!("most epochs = {} ({} rounds)\n", found.value, phase.rounds()),
            Solve::Groups => format!("most groups a round = {} ({} rounds)\n", found.value, phase.rounds()),
        };
        text.push_str(&reached(settings.budget.adversary, found, target, delta));
        let attacks: Vec<String> = found
            .tradeoff
            .iter()
            .map(|&(alpha, beta)| format!("{} at {} %", percent(beta), number(100.0 * alpha)))
            .collect();
        let attacks = format!("the best attack finds at most {} false alarms", attacks.join(", "));
        text.push_str(&wrapped(&attacks, 0));
        let replaced = self.solve.replaced();
        let given = flags.to_flags(|name| replaced.contains(&name))?;
        if !given.is_empty() {
            text.push_str(&format!("not used, because it is solved for:{given}\n"));
        }
        let config =
            self.config.as_ref().map(|path| format!(" --config {}", path.display())).unwrap_or_default();
        text.push_str(&format!(
            "check it with:\n  dpsgd account{config}{} --{} {}\n",
            flags.to_flags(|name| name != "max-epsilon" && !replaced.contains(&name))?,
            self.solve.name(),
            found.value
        ));
        Ok(text)
    }
}

fn reached(adversary: Adversary, found: &Found, target: Target, delta: f64) -> String {
    let who = subscript(adversary);
    match target {
        Target::Mu(mu) => format!(
            "reaches µ ≤ {} against {who}, certified (target {})\nand so ε ≤ {} at δ = {}\n",
            up(found.reached.upper, 6),
            number(mu),
            up(found.epsilon.upper, 6),
            number(delta)
        ),
        Target::Epsilon { epsilon: wanted, .. } => {
            // The certified end meets the target; rounding it up for display must not hide that.
            let upper = found.epsilon.upper;
            let shown = up(upper, 6).parse::<f64>().map_or(upper, |shown| shown.min(wanted));
            format!(
                "reaches ε ≤ {} at δ = {} against {who}, certified (target {})\n",
                number(shown),
                number(delta),
                number(wanted)
            )
        }
    }
}

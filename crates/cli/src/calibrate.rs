//! `dpsgd calibrate`: the setting that meets a target, with the certified value it reaches.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dpsgd_privacy::calibrate::{Calibrated, Target, epochs, groups, sigma};
use dpsgd_privacy::{Adversary, Interval, PrivacyError, adversary};
use serde_json::{Map, Value, json};

use crate::rounding::up;
use crate::settings::{self, AdversaryName, Question, Run, Settings, number};
use crate::statement::{percent, subscript, wrapped};
use crate::{Failure, json, print};

/// The flags of `dpsgd calibrate`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  dpsgd calibrate --target-epsilon 3 --delta 1e-5 --solve sigma --groups 1024 --epochs 15
  dpsgd calibrate --target-epsilon 1 --delta 1e-5 --solve epochs --sigma 2
  dpsgd calibrate --target-mu 0.5 --solve groups --epochs 30 --sigma 1 --json
  dpsgd calibrate --target-epsilon 8 --solve sigma --sampling shuffle --adversary A1")]
pub struct Calibrate {
    /// What to find: the smallest sigma, the most epochs, or the most groups a round
    #[arg(long, value_enum, help_heading = "The target")]
    solve: Solve,
    /// The ε to meet at --delta
    #[arg(long, value_name = "ε", allow_hyphen_values = true, help_heading = "The target")]
    target_epsilon: Option<f64>,
    /// The µ of Gaussian DP to meet, instead of --target-epsilon
    #[arg(long, value_name = "µ", allow_hyphen_values = true, help_heading = "The target")]
    target_mu: Option<f64>,
    /// Against whom [default: A0; A1 for shuffle, where nothing better is known]
    #[arg(long, value_enum, ignore_case = true, help_heading = "The target")]
    adversary: Option<AdversaryName>,
    #[command(flatten)]
    settings: Settings,
    /// Settings from a TOML file
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

    /// The flags that the found value takes the place of.
    fn replaced(self) -> &'static [&'static str] {
        match self {
            Solve::Sigma => &["sigma", "noise-multiplier"],
            Solve::Epochs => &["epochs", "rounds"],
            Solve::Groups => &["groups"],
        }
    }
}

/// What was found.
struct Found {
    /// As it is written behind the flag.
    value: String,
    number: Value,
    reached: Interval,
    run: Run,
}

impl Calibrate {
    /// Solves and prints the result.
    pub fn run(self) -> Result<(), Failure> {
        if self.settings.epsilon.is_some() {
            return Err(Failure::Input("--epsilon: give the ε to meet as --target-epsilon".into()));
        }
        let run = settings::resolve(&self.settings, self.config.as_ref())?;
        let (target, delta) = self.target(&run)?;
        let adversary = settings::against(self.adversary, &run.config);
        let found = self.solved(run, adversary, target)?;
        // Accounted for once more, as `dpsgd account` would: the ε and the attacks of the found run.
        let curve = adversary::curve(&found.run.mechanism, adversary)?;
        let epsilon = match target {
            Target::Epsilon { .. } => found.reached,
            Target::Mu(_) => curve.epsilon(delta)?,
        };
        let alphas = &found.run.alphas;
        let tradeoff = alphas.iter().map(|&alpha| Ok((alpha, curve.beta(alpha)?)));
        let tradeoff = tradeoff.collect::<Result<Vec<_>, PrivacyError>>()?;
        let phase = found.run.mechanism.phases()[0];
        if self.json {
            let mut value = Map::new();
            value.insert(self.solve.name().into(), found.number.clone());
            if self.solve == Solve::Sigma {
                value.insert("noise_multiplier".into(), json!(phase.noise_multiplier()));
            } else {
                value.insert("rounds".into(), json!(phase.rounds()));
            }
            value.insert("epsilon".into(), json::interval(epsilon));
            value.insert("delta".into(), json!(delta));
            if let Target::Mu(_) = target {
                value.insert("mu".into(), json::interval(found.reached));
            }
            value.insert("adversary".into(), json!(adversary.name()));
            value.insert("tradeoff".into(), json::tradeoff(&tradeoff, alphas));
            value.insert("mechanism".into(), json::mechanism(&found.run));
            return print(&json::line(&Value::Object(value)));
        }
        let mut text = match self.solve {
            Solve::Sigma => format!(
                "smallest σ = {} (noise multiplier 2σ = {})\n",
                found.value,
                number(phase.noise_multiplier())
            ),
            Solve::Epochs => format!("most epochs = {} ({} rounds)\n", found.value, phase.rounds()),
            Solve::Groups => format!("most groups a round = {} ({} rounds)\n", found.value, phase.rounds()),
        };
        let who = subscript(adversary);
        if let Target::Mu(mu) = target {
            text.push_str(&format!(
                "reaches µ ≤ {} against {who}, certified (target {})\n",
                up(found.reached.upper, 6),
                number(mu)
            ));
            text.push_str(&format!("and so ε ≤ {} at δ = {}\n", up(epsilon.upper, 6), number(delta)));
        } else if let Target::Epsilon { epsilon: wanted, .. } = target {
            // The certified end meets the target; rounding it up for display must not hide that.
            let shown = up(epsilon.upper, 6).parse::<f64>().map_or(epsilon.upper, |shown| shown.min(wanted));
            text.push_str(&format!(
                "reaches ε ≤ {} at δ = {} against {who}, certified (target {})\n",
                number(shown),
                number(delta),
                number(wanted)
            ));
        }
        let attacks = tradeoff.iter();
        let attacks: Vec<String> = attacks
            .map(|&(alpha, beta)| format!("{} at {} %", percent(beta), number(100.0 * alpha)))
            .collect();
        text.push_str(&wrapped(
            &format!("the best attack finds at most {} false alarms", attacks.join(", ")),
            0,
        ));
        let given = self.settings.given(self.solve.replaced());
        if !given.is_empty() {
            text.push_str(&format!("not used, as it is solved for:{given}\n"));
        }
        let config =
            self.config.as_ref().map(|path| format!(" --config {}", path.display())).unwrap_or_default();
        text.push_str(&format!(
            "check it with:\n  dpsgd account{config}{} --{} {}\n",
            self.settings.to_flags(self.solve.replaced()),
            self.solve.name(),
            found.value
        ));
        print(&text)
    }

    fn target(&self, run: &Run) -> Result<(Target, f64), Failure> {
        let Question::Epsilon { delta } = run.question else {
            return Err(Failure::Input(
                "epsilon in the file: calibrating needs delta and --target-epsilon".into(),
            ));
        };
        match (self.target_epsilon, self.target_mu) {
            (Some(epsilon), None) => Ok((Target::Epsilon { epsilon, delta }, delta)),
            (None, Some(mu)) => Ok((Target::Mu(mu), delta)),
            (Some(_), Some(_)) => Err(Failure::Input(
                "--target-epsilon and --target-mu are both given: give one of the two".into(),
            )),
            (None, None) => {
                Err(Failure::Input("the target is missing: give --target-epsilon or --target-mu".into()))
            }
        }
    }

    fn solved(&self, run: Run, adversary: Adversary, target: Target) -> Result<Found, Failure> {
        fn found<T: Copy + Into<Value>>(run: Run, calibrated: Calibrated<T>, value: String) -> Found {
            let config = calibrated.mechanism.config();
            let run = Run { mechanism: calibrated.mechanism, config, ..run };
            Found { value, number: calibrated.value.into(), reached: calibrated.reached, run }
        }
        Ok(match self.solve {
            Solve::Sigma => {
                let calibrated = sigma(&run.config, adversary, target)?;
                let value = number(calibrated.value);
                found(run, calibrated, value)
            }
            Solve::Epochs => {
                let calibrated = epochs(&run.config, adversary, target)?;
                let value = calibrated.value.to_string();
                found(run, calibrated, value)
            }
            Solve::Groups => {
                let calibrated = groups(&run.config, adversary, target)?;
                let value = calibrated.value.to_string();
                found(run, calibrated, value)
            }
        })
    }
}

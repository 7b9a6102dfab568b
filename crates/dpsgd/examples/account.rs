//! Accounting only: what a run leaks, without training anything.

use dpsgd::RawSettings;
use dpsgd::privacy::account::Question;
use dpsgd::privacy::calibrate::{self, Target};
use dpsgd::privacy::mechanism::*;
use dpsgd::privacy::{Account, Adversary, adversary};
use dpsgd::report::{Sizes, statement};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The whole account of a run, as `dpsgd account` prints it.
    let run = RunConfig::single(PhaseConfig {
        sampling: Sampling::Subsample { samples: 60_000, groups: 256, group_size: 1 },
        length: Length::Epochs(30),
        noise: NoiseScale::Sigma(1.0),
        filtered: false,
    });
    let account = Account::of(&run.check()?, Question::epsilon_at(1e-5)?, &[0.01, 0.05])?;
    println!("{}", statement::trained(&account, Sizes::default()));

    // One number, as a certified interval; and the noise that a target needs.
    let curve = adversary::curve(&run.check()?, Adversary::A0)?;
    let epsilon = curve.epsilon(1e-6)?;
    println!("{} ≤ ε ≤ {} at δ = 1e-6", epsilon.lower, epsilon.upper);
    let target = Target::Epsilon { epsilon: 1.0, delta: 1e-6 };
    println!("σ = {} reaches ε ≤ 1", calibrate::sigma(&run, Adversary::A0, target)?.value);

    // The same from settings, as a file or flags would give them; an account can be stored.
    let settings: RawSettings =
        toml::from_str("sampling = 'poisson'\nrate = 0.01\nrounds = 1000\nsigma = 0.5")?;
    println!("{}", serde_json::to_string(&settings.resolve()?.account()?)?.len());
    Ok(())
}

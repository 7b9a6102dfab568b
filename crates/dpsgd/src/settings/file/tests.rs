//! Settings that are almost right: an error of one line, or a run that can be written down and read again.

#[path = "../../../../data/tests/mutate/mod.rs"]
mod mutate;

use std::path::Path;

use mutate::{changed, config};
use proptest::prelude::*;

use super::parse;
use crate::settings::{Population, RawSettings, SettingsError};

const TRAIN: &str = "data = \"people.csv\"\ntest = \"public.csv\"\nnormalise = \"private\"\nnormalise-mu = \
    0.1\n\
    net = \"mlp\"\ngroups = 100\ngroup-size = 2\nepochs = 3\nsigma = 2.5\nnoise = \"exact\"\nsampling = \
    \"shuffle\"\n\
    filter = false\nneighbours = \"substitute\"\ndiffering = 2\nrelease-mu = [0.5, 0.25]\ndelta = 1e-5\n\
    adversary = \"A1\"\nclip = 0.1\nclip-rule = \"follow-update:0.5\"\nstep = 3\nstep-rule = \
    \"step:0.5:20\"\n\
    inner = [\"sgd\", \"adam\"]\ninner-step = 0.05\ninner-result = \"difference\"\nouter = \"momentum\"\n\
    momentum = 0.9\nseed = 7\nthreads = 2\ndiagnostics = true\n[network]\ninput = [1, 1, \
    3]\n[[network.layer]]\n\
    kind = \"linear\"\nfeatures = 2\n[schema.label]\nname = \"income\"\ncategories = [\"low\", \"high\"]\n\
    [[schema.column]]\nname = \"age\"\nrange = [0, 100]\n";
const POISSON: &str = "sampling = \"poisson\"\nrate = 0.05\ngroups = 100\nrounds = 200\nnoise-multiplier = \
    1.5\n\
    neighbours = \"add-remove\"\nouter = \"adam\"\nstep-rule = \"when-worse:0.9\"\n";
const ALLOCATE: &str = "sampling = \"allocate\"\nrounds-per-epoch = 20\ngroups = 100\nepochs = 2\n\
    noise-multiplier = 1.5\nneighbours = \"add-remove\"\n";
const PHASES: &str = "samples = 60000\ngroups = 64\ndelta = 1e-5\nalpha = [0.01, 0.5]\nrelease-mu = \
    [0.5]\n[[phase]]\n\
    epochs = 30\nsigma = 2.0\n[[phase]]\nrounds = 500\nnoise-multiplier = 3\nsampling = \"poisson\"\nrate = \
    0.01\n\
    filter = false\n";

fn refusal(error: &SettingsError) -> Result<(), TestCaseError> {
    let text = error.to_string();
    prop_assert!(!text.is_empty() && text.len() < 5000, "{text:?}");
    Ok(())
}

/// Calibrating and counting affordable rounds take their time.
fn takes_long(given: &RawSettings) -> bool {
    let noise = |raw: &RawSettings| raw.sigma.or(raw.noise_multiplier).is_some();
    let all = noise(given) || (!given.phase.is_empty() && given.phase.iter().all(noise));
    !all || given.max_epsilon.is_some()
}

proptest! {
    #![proptest_config(config(6000))]

    #[test]
    fn training_is_refused_or_can_be_written_down(
        bytes in changed(vec![TRAIN.into(), POISSON.into(), ALLOCATE.into()]),
    ) {
        let given: RawSettings = match parse(Path::new("run.toml"), &bytes) {
            Ok(given) => given,
            Err(error) => {
                prop_assert!(error.to_string().starts_with("run.toml: "), "{error}");
                return Ok(());
            }
        };
        if takes_long(&given) {
            return Ok(());
        }
        match given.resolve_for(Population::measured(2000, false)) {
            Ok(settings) => {
                let text = settings.config_text().expect("it goes into config.toml");
                let again: RawSettings = parse(Path::new("config.toml"), text.as_bytes()).expect("what was written");
                let again = again.resolve_for(Population::measured(2000, false)).expect("the same run");
                prop_assert_eq!(&again.config_text().expect("the same"), &text);
                prop_assert_eq!(&again.mechanism, &settings.mechanism);
                prop_assert!(settings.command().is_ok());
                if let Ok(plan) = settings.plan() {
                    prop_assert_eq!(plan.mechanism(), &settings.mechanism);
                }
            }
            Err(error) => refusal(&error)?,
        }
    }

    #[test]
    fn an_account_is_refused_or_of_a_checked_run(
        bytes in changed(vec![PHASES.into(), POISSON.into(), ALLOCATE.into()]),
    ) {
        let given: RawSettings = match parse(Path::new("run.toml"), &bytes) {
            Ok(given) => given,
            Err(error) => return refusal(&error),
        };
        if takes_long(&given) {
            return Ok(());
        }
        match given.resolve() {
            Ok(settings) => {
                prop_assert_eq!(&settings.run_config().check().expect("it was checked"), &settings.mechanism);
                prop_assert_eq!(settings.to_raw().resolve().expect("the same").mechanism, settings.mechanism);
            }
            Err(error) => refusal(&error)?,
        }
    }
}

/// Deep nesting must not use up the stack.
#[test]
fn nesting_ends() {
    for (open, close) in [("[", "]"), ("{a=", "}")] {
        let text = format!("data = {}1{}", open.repeat(100_000), close.repeat(100_000));
        assert!(parse::<RawSettings>(Path::new("deep.toml"), text.as_bytes()).is_err());
    }
    let text = format!("[{}]\n", vec!["a"; 100_000].join("."));
    assert!(parse::<RawSettings>(Path::new("deep.toml"), text.as_bytes()).is_err());
}

/// The place of an error is counted in bytes, whatever is before it.
#[test]
fn errors_after_long_characters_have_a_line() {
    let error =
        parse::<RawSettings>(Path::new("a.toml"), "data = \"ß∂😀\"\nnet = ∂\n".as_bytes()).unwrap_err();
    assert!(error.to_string().starts_with("a.toml: line 2: "), "{error}");
    let error = parse::<RawSettings>(Path::new("a.toml"), b"data = \"\xff\"\n").unwrap_err();
    assert!(error.to_string().starts_with("a.toml: "), "{error}");
}

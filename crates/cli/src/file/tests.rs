//! Settings that are almost right: an error of one line, or a run that can be written down and read again.

#[path = "../../../data/tests/mutate/mod.rs"]
mod mutate;

use std::path::Path;

use mutate::{changed, config};
use proptest::prelude::*;

use super::parse;
use crate::Failure;
use crate::settings::{self, Settings};
use crate::train::algorithm;
use crate::train::mechanism::{Size, settled};
use crate::train::settings::TrainSettings;

const TRAIN: &str = "data = \"people.csv\"\ntest = \"public.csv\"\nnormalise = \"private\"\nnormalise-mu = 0.1\nnet = \"mlp\"\n\
    groups = 100\ngroup-size = 2\nepochs = 3\nsigma = 2.5\nnoise = \"exact\"\nsampling = \"shuffle\"\nfilter = false\n\
    neighbours = \"substitute\"\ndiffering = 2\nrelease-mu = [0.5, 0.25]\ndelta = 1e-5\nadversary = \"A1\"\nclip = 0.1\n\
    clip-rule = \"follow-update:0.5\"\nstep = 3\nstep-rule = \"step:0.5:20\"\ninner = [\"sgd\", \"adam\"]\ninner-step = 0.05\n\
    inner-result = \"difference\"\nouter = \"momentum\"\nmomentum = 0.9\nseed = 7\nthreads = 2\ndiagnostics = true\n\
    [network]\ninput = [1, 1, 3]\n[[network.layer]]\nkind = \"linear\"\nfeatures = 2\n[schema.label]\nname = \"income\"\n\
    categories = [\"low\", \"high\"]\n[[schema.column]]\nname = \"age\"\nrange = [0, 100]\n";
const POISSON: &str = "sampling = \"poisson\"\nrate = 0.05\ngroups = 100\nrounds = 200\nnoise-multiplier = 1.5\n\
    neighbours = \"add-remove\"\nouter = \"adam\"\nstep-rule = \"when-worse:0.9\"\n";
const ACCOUNT: &str = "samples = 60000\ngroups = 64\ndelta = 1e-5\nalpha = [0.01, 0.5]\nrelease-mu = [0.5]\n[[phase]]\nepochs = 30\n\
    sigma = 2.0\n[[phase]]\nrounds = 500\nnoise-multiplier = 3\nsampling = \"poisson\"\nrate = 0.01\nfilter = false\n";

fn refusal(error: &Failure) -> Result<(), TestCaseError> {
    let Failure::Input(text) = error else { return Err(TestCaseError::fail(format!("{error:?}"))) };
    prop_assert!(!text.is_empty() && text.len() < 5000, "{text:?}");
    Ok(())
}

proptest! {
    #![proptest_config(config(6000))]

    #[test]
    fn training_is_refused_or_can_be_written_down(bytes in changed(vec![TRAIN.into(), POISSON.into()])) {
        let given: TrainSettings = match parse(Path::new("run.toml"), &bytes) {
            Ok(given) => given,
            Err(error) => {
                prop_assert!(error.to_string().starts_with("run.toml: "), "{error}");
                return refusal(&error);
            }
        };
        // Without noise it would be calibrated, and with a budget rounds would be counted: both take their time.
        if given.sigma.or(given.noise_multiplier).is_none() || given.max_epsilon.is_some() {
            return Ok(());
        }
        let run = settled(&given, Size { samples: 2000, public: false }, &[])
            .and_then(|run| algorithm::planned(&run.settings, &run.run.mechanism));
        match run {
            Ok((settings, plan)) => {
                let text = toml::to_string(&settings).expect("it goes into config.toml");
                let again: TrainSettings = parse(Path::new("config.toml"), text.as_bytes()).expect("what was written");
                prop_assert_eq!(toml::to_string(&again).expect("the same"), text);
                prop_assert!(settings.command().is_ok() && plan.rounds() > 0);
            }
            Err(error) => refusal(&error)?,
        }
    }

    #[test]
    fn an_account_is_refused_or_of_a_checked_run(bytes in changed(vec![ACCOUNT.into(), POISSON.into()])) {
        let path = std::env::temp_dir().join(format!("dpsgd-account-{}.toml", std::process::id()));
        std::fs::write(&path, &bytes).expect("a writable directory");
        match settings::resolve(&Settings::default(), Some(&path)) {
            Ok(run) => prop_assert_eq!(run.config.check().expect("it was checked"), run.mechanism),
            Err(error) => refusal(&error)?,
        }
        std::fs::remove_file(&path).expect("a file");
    }
}

/// Deep nesting must not use up the stack.
#[test]
fn nesting_ends() {
    for (open, close) in [("[", "]"), ("{a=", "}")] {
        let text = format!("data = {}1{}", open.repeat(100_000), close.repeat(100_000));
        assert!(parse::<TrainSettings>(Path::new("deep.toml"), text.as_bytes()).is_err());
    }
    let text = format!("[{}]\n", vec!["a"; 100_000].join("."));
    assert!(parse::<TrainSettings>(Path::new("deep.toml"), text.as_bytes()).is_err());
}

/// The place of an error is counted in bytes, whatever is before it.
#[test]
fn errors_behind_long_characters_have_a_line() {
    let error =
        parse::<TrainSettings>(Path::new("a.toml"), "data = \"ß∂😀\"\nnet = ∂\n".as_bytes()).unwrap_err();
    assert!(error.to_string().starts_with("a.toml: line 2: "), "{error}");
    let error = parse::<TrainSettings>(Path::new("a.toml"), b"data = \"\xff\"\n").unwrap_err();
    assert!(error.to_string().starts_with("a.toml: "), "{error}");
}

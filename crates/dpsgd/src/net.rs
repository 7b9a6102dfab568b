//! The network of a run: by name, or from a TOML file.

use std::ffi::OsStr;
use std::path::Path;

use dpsgd_data::Dataset;
use dpsgd_engine::spec::{LayerSpec, Loss, NetworkSpec};
use dpsgd_engine::{Network, NetworkError, zoo};

use crate::Error;
use crate::settings::{NetSettings, file};

/// The networks that are known by name.
pub const NAMES: [&str; 5] = ["lenet5", "paper-cnn", "small-cnn", "mlp", "logistic"];

/// The hidden layers of `mlp`.
const HIDDEN: [usize; 1] = [128];

/// Why a network cannot learn from the data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// A name that is neither known nor a file.
    #[error("net = {0}: neither lenet5, paper-cnn, small-cnn, mlp or logistic nor a TOML file that exists")]
    Unknown(String),
    /// A network for images, and other data.
    #[error("net = {0}: the data are not images; take mlp, logistic or a TOML file")]
    NotImages(String),
    /// The network itself.
    #[error("net: {0}")]
    Network(#[from] NetworkError),
    /// The shapes differ.
    #[error("net: its input is {expected:?}, the samples are {found:?} (height, width, channels)")]
    Shape {
        /// What the network takes.
        expected: [usize; 3],
        /// What the data are.
        found: [usize; 3],
    },
    /// The outputs or the loss do not fit what is to be learned.
    #[error("net: {outputs} outputs and its loss do not fit data with {data}")]
    Outputs {
        /// The outputs of the network.
        outputs: usize,
        /// What the data ask for.
        data: String,
    },
}

/// The layers of the network that the settings name, made for the data; and its short name.
pub fn named(settings: &NetSettings, data: &Dataset) -> Result<(String, NetworkSpec), Error> {
    if let Some(spec) = &settings.spec {
        return Ok((settings.name.clone(), spec.clone()));
    }
    let shape = data.shape();
    let image = shape[0] > 1 && shape[1] > 1;
    // Regression has one output.
    let outputs = data.classes().unwrap_or(1);
    let name = settings.name.clone();
    let mut spec = match name.as_str() {
        "lenet5" | "paper-cnn" | "small-cnn" if !image => return Err(NetError::NotImages(name).into()),
        "lenet5" => zoo::lenet5(shape, outputs, LayerSpec::Tanh),
        "paper-cnn" => zoo::paper_cnn(shape, outputs),
        "small-cnn" => zoo::small_cnn(shape, outputs),
        "mlp" => zoo::mlp(shape, &HIDDEN, outputs, LayerSpec::Tanh),
        "logistic" => zoo::logistic(shape, outputs),
        path if Path::new(path).is_file() => {
            let path = Path::new(path);
            let text = |part: Option<&OsStr>| part.map(|part| part.to_string_lossy().into_owned());
            let stem = text(path.file_stem()).unwrap_or_default();
            // A file is not the network that is known by the same name.
            let known = NAMES.contains(&stem.as_str());
            let name = if known { text(path.file_name()).unwrap_or_default() } else { stem };
            return Ok((name, file::read(path)?));
        }
        _ => return Err(NetError::Unknown(name).into()),
    };
    if data.classes().is_none() {
        spec.loss = Loss::Squared;
    }
    Ok((name, spec))
}

/// Checks a network by itself and against the data.
pub fn checked(spec: &NetworkSpec, data: &Dataset) -> Result<Network, NetError> {
    let network = Network::new(spec)?;
    if spec.input != data.shape() {
        return Err(NetError::Shape { expected: spec.input, found: data.shape() });
    }
    let outputs = network.outputs();
    let fits = match (spec.loss, data.classes()) {
        (Loss::Logistic, Some(classes)) => classes == 2,
        // A regression on classes takes them in one-hot form.
        (_, Some(classes)) => outputs == classes,
        (loss, None) => loss.is_regression() && outputs == 1,
    };
    if !fits {
        let data = match data.classes() {
            Some(classes) => format!("{classes} classes"),
            None => "one value to predict".to_string(),
        };
        return Err(NetError::Outputs { outputs, data });
    }
    Ok(network)
}

//! The network of a run: by name, or from a TOML file.

use std::path::Path;

use dpsgd_data::Dataset;
use dpsgd_engine::spec::{LayerSpec, Loss, NetworkSpec};
use dpsgd_engine::{Network, zoo};

use super::defaults;
use super::settings::{FeaturesName, TrainSettings};
use crate::Failure;
use crate::file::read;

/// The networks that are known by name.
pub const NAMES: [&str; 4] = ["lenet5", "paper-cnn", "mlp", "logistic"];

/// The hidden layers of `--net mlp`.
const HIDDEN: [usize; 1] = [128];

fn refuse<T>(why: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Input(why.into()))
}

/// The network that the settings name, made for the data; and its short name.
pub fn named(given: &TrainSettings, data: &Dataset) -> Result<(String, NetworkSpec), Failure> {
    if let Some(spec) = &given.network {
        return Ok((given.net.clone().unwrap_or("network".to_string()), spec.clone()));
    }
    let shape = data.shape();
    let image = shape[0] > 1 && shape[1] > 1;
    let usual = match given.features {
        Some(FeaturesName::Scattering) => defaults::FEATURES_NET,
        None if image => defaults::NET,
        None => defaults::TABLE_NET,
    };
    let name = given.net.clone().unwrap_or(usual.to_string());
    // Regression has one output.
    let outputs = data.classes().unwrap_or(1);
    let mut spec = match name.as_str() {
        "lenet5" | "paper-cnn" if !image => {
            return refuse(format!(
                "net = {name}: the data are no images; take mlp, logistic or a TOML file"
            ));
        }
        "lenet5" => zoo::lenet5(shape, outputs, LayerSpec::Tanh),
        "paper-cnn" => zoo::paper_cnn(shape, outputs),
        "mlp" => zoo::mlp(shape, &HIDDEN, outputs, LayerSpec::Tanh),
        "logistic" => zoo::logistic(shape, outputs),
        file if Path::new(file).is_file() => {
            let path = Path::new(file);
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            return Ok((stem, read(path)?));
        }
        other => {
            return refuse(format!(
                "net = {other}: neither lenet5, paper-cnn, mlp or logistic nor a TOML file that exists"
            ));
        }
    };
    if data.classes().is_none() {
        spec.loss = Loss::Squared;
    }
    Ok((name, spec))
}

/// Checks a network by itself and against the data.
pub fn checked(spec: &NetworkSpec, data: &Dataset) -> Result<Network, Failure> {
    let network = Network::new(spec).map_err(|error| Failure::Input(format!("net: {error}")))?;
    if spec.input != data.shape() {
        return refuse(format!(
            "net: its input is {:?}, the samples are {:?} (height, width, channels)",
            spec.input,
            data.shape()
        ));
    }
    let outputs = network.outputs();
    let fits = match (spec.loss, data.classes()) {
        (Loss::SoftmaxCrossEntropy, Some(classes)) => outputs == classes,
        (Loss::Logistic, Some(classes)) => classes == 2,
        (Loss::Squared, Some(classes)) => outputs == classes,
        (Loss::Squared, None) => outputs == 1,
        (_, None) => false,
    };
    if !fits {
        let data = match data.classes() {
            Some(classes) => format!("{classes} classes"),
            None => "one value to predict".to_string(),
        };
        return refuse(format!("net: {outputs} outputs and its loss do not fit data with {data}"));
    }
    Ok(network)
}

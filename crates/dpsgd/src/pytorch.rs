//! `model.py`: the model of a run in plain PyTorch, with everything that happens to a sample before it.

mod modules;

use std::fmt::Write;

use dpsgd_data::schema::{CategorySource, Column, RangeSource, Schema};
use dpsgd_data::{LIMIT, Normalisation};
use dpsgd_engine::Network;
use dpsgd_engine::spec::Loss;
use serde_json::json;

use crate::inputs::Constants;
use crate::predict::schema_of;
use crate::settings::Settings;

use self::modules::net;

/// The file beside the weights.
pub const MODEL_PY: &str = "model.py";

/// The program: `net` with the weights of the run, and `predict` for samples as they come.
pub fn program(settings: &Settings, network: &Network, constants: Option<&Constants>) -> String {
    let mut text = HEAD.to_string();
    text.push_str(&net(network));
    text.push_str(LOAD);
    text.push_str(match network.spec().loss {
        Loss::SoftmaxCrossEntropy => "\n\ndef probabilities(outputs):\n    return outputs.softmax(1)\n",
        Loss::Logistic => {
            "\n\ndef probabilities(outputs):\n    one = outputs.sigmoid()\n    \
             return torch.cat([1 - one, one], 1)\n"
        }
        Loss::Hinge => {
            "\n\ndef probabilities(outputs):\n    # Not calibrated: they only order the classes.\n    \
             return outputs.softmax(1)\n"
        }
        Loss::Squared | Loss::Absolute | Loss::Huber { .. } => {
            "\n\ndef probabilities(outputs):\n    return outputs  # values, not probabilities\n"
        }
    });
    match schema_of(settings) {
        Some(schema) if schema.uncovered().is_empty() => text.push_str(&rows(&schema, constants)),
        Some(_) => text.push_str(FROM_DATA),
        None if settings.data.features.is_some() => text.push_str(FEATURES),
        None => text.push_str(&images(settings, constants)),
    }
    text
}

const HEAD: &str = r#""""The model of this run in plain PyTorch: `python model.py FILE`, or `from model import predict`.

Written by dpsgd. Needs torch and safetensors, and model.safetensors in the same directory.
"""
import csv
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

"#;

const LOAD: &str = r#"net.load_state_dict(load_file(Path(__file__).with_name("model.safetensors")))
net.eval()
"#;

const FROM_DATA: &str = r#"
# The categories or ranges of some columns were taken from the training file, so new rows cannot be
# prepared here: net(x) takes rows that have been.
"#;

const FEATURES: &str = r#"
# The network was trained on fixed features of the images, which PyTorch does not have:
# net(x) takes those. `dpsgd predict` takes images.
"#;

/// How images become inputs.
fn images(settings: &Settings, constants: Option<&Constants>) -> String {
    let (mean, std) = match (constants, settings.data.public_normalisation()) {
        (Some(known), _) => (known.mean.clone(), known.std.clone()),
        (None, Normalisation::Public { mean, std }) => (mean, std),
        (None, _) => (vec![0.0], vec![1.0]),
    };
    let [low, high] = settings.data.declared.range.unwrap_or([0.0, 255.0]);
    format!(
        r#"
MEAN = torch.tensor({}).view(1, -1, 1, 1)
STD = torch.tensor({}).view(1, -1, 1, 1)
LOW, HIGH = {low:?}, {high:?}  # the public range of the values; 0 to 255 for bytes


def predict(images):
    """Probabilities for images with values in that range, a tensor of samples × channels × height × width."""
    with torch.no_grad():
        x = ((images.float() - LOW) / (HIGH - LOW)).clamp(0, 1)
        return probabilities(net((x - MEAN) / STD))


def read(path):
    """The images of an IDX file, the format of MNIST."""
    data = Path(path).read_bytes()
    sizes = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(data[3])]
    images = torch.frombuffer(bytearray(data[4 + 4 * len(sizes) :]), dtype=torch.uint8)
    return images.view(sizes[0], 1, *sizes[1:])


if __name__ == "__main__":
    for row in predict(read(sys.argv[1])).tolist():
        print(",".join(f"{{p:.6f}}" for p in row))
"#,
        json!(mean),
        json!(std)
    )
}

/// How rows of a table become inputs.
fn rows(schema: &Schema, constants: Option<&Constants>) -> String {
    let mut numbers = constants.map(|known| known.mean.iter().zip(&known.std)).into_iter().flatten();
    let mut columns = String::new();
    for column in &schema.columns {
        let meaning = match column {
            Column { categories: Some(CategorySource::Public(list)), .. } => {
                let list: Vec<&str> = list.iter().map(|category| category.trim()).collect();
                json!({ "categories": list })
            }
            Column { range: Some(RangeSource::Public(range)), .. } => match numbers.next() {
                Some((mean, std)) => json!({ "range": range, "mean": mean, "std": std }),
                None => json!({ "range": range }),
            },
            // Such a schema was refused when it was read.
            _ => json!({}),
        };
        let _ = writeln!(columns, "    {}: {meaning},", json!(column.name));
    }
    let delimiter = json!(schema.delimiter.to_string());
    format!(
        r#"
COLUMNS = {{
{columns}}}
MISSING = {missing}
UNLISTED = "{unlisted}"  # a category that is not in the list: "refuse" it, or "zero", count it as missing
LIMIT = {LIMIT:?}  # no normalised number is further than this from its mean, in standard deviations


def encode(row):
    """The inputs of the network for a row: a dictionary of strings."""
    x = []
    for name, column in COLUMNS.items():
        field = row[name].strip()
        if "categories" in column:
            if field not in column["categories"] and field not in MISSING and UNLISTED == "refuse":
                raise ValueError(f"{{name}}: {{field!r}} is not in the list of categories")
            x += [float(field == category) for category in column["categories"]]
            continue
        if field in MISSING:
            x.append(0.0 if "mean" in column else 0.5)
            continue
        low, high = column["range"]
        value = min(max((float(field) - low) / (high - low), 0.0), 1.0)
        if "mean" in column:
            value = min(max((value - column["mean"]) / column["std"], -LIMIT), LIMIT)
        x.append(value)
    return x


def predict(rows):
    """Probabilities for rows, each a dictionary of strings, as csv.DictReader gives them."""
    with torch.no_grad():
        return probabilities(net(torch.tensor([encode(row) for row in rows])))


def read(path):
    """The rows of a CSV file."""
    with open(path, newline="") as file:
        return [{{k.strip(): v for k, v in row.items()}} for row in csv.DictReader(file, delimiter={delimiter})]


if __name__ == "__main__":
    for row in predict(read(sys.argv[1])).tolist():
        print(",".join(f"{{p:.6f}}" for p in row))
"#,
        missing = json!(schema.missing),
        unlisted = match schema.unlisted {
            dpsgd_data::schema::Unlisted::Refuse => "refuse",
            dpsgd_data::schema::Unlisted::Zero => "zero",
        },
    )
}

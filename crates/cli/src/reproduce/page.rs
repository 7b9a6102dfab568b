//! What is written: one page, the tables as CSV, and everything as JSON.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use dpsgd_engine::kernel::Level;
use dpsgd_train::directory::write_atomically;
use serde_json::{Map, Value, json};

use super::panels::Scale;
use super::section::Section;
use crate::html;
use crate::{Failure, json as shown};

/// The parts in the order of the page, named as on the command line.
const ORDER: [&str; 6] = ["table1", "table2", "table3", "figure1", "why", "beyond"];

/// Writes the parts into a directory, beside those that were written there before; the path of the page.
pub fn write(out: &Path, fresh: Vec<(&'static str, Section)>, scale: &Scale) -> Result<PathBuf, Failure> {
    let place = out.join("sections");
    std::fs::create_dir_all(&place).map_err(|error| failed(&place, error))?;
    for (name, section) in &fresh {
        let path = place.join(format!("{name}.json"));
        save(&path, &serde_json::to_string(section).map_err(|error| failed(&path, error))?)?;
    }
    let mut body = head(scale);
    let mut all = Map::new();
    for name in ORDER {
        let path = place.join(format!("{name}.json"));
        let section: Section = match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| {
                Failure::Input(format!("{}: {error}; remove it and reproduce {name} again", path.display()))
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(&path, error)),
        };
        body.push_str(&html::section(&section.title, &section.html));
        for (file, text) in &section.csv {
            save(&out.join(file), text)?;
        }
        all.insert(name.to_string(), section.json);
    }
    let about = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "quick": scale.quick,
        "seed": scale.seed,
        "instructions": Level::best().name(),
        "data": scale.data.iter().map(|data| data.name()).collect::<Vec<_>>(),
    });
    save(
        &out.join("reproduce.json"),
        &shown::line(&json!({ "about": about, "sections": Value::Object(all) })),
    )?;
    let page = out.join("reproduce.html");
    let footer = "Every ε is the certified upper end of an interval, rounded up.";
    save(&page, &html::page("The paper, reproduced", &body, footer))?;
    Ok(page)
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Machine(format!("{}: {error}", path.display()))
}

fn head(scale: &Scale) -> String {
    let lead = "Every table and figure of “Generalizing DP-SGD with Shuffling and Batch Clipping”, computed by dpsgd, beside what the paper prints.";
    let quick = if scale.quick {
        "<span class=\"badge warning\">small version: few samples and epochs, nothing to compare accuracies with</span>\n"
    } else {
        ""
    };
    format!(
        "<header>\n<h1>The paper, reproduced</h1>\n<p class=\"lead\">{}</p>\n{quick}{}</header>\n",
        html::escape(lead),
        html::paragraph(&format!(
            "dpsgd {}, seed {}, {} kernels. The numbers are in the CSV files and in reproduce.json beside this page.",
            env!("CARGO_PKG_VERSION"),
            scale.seed,
            Level::best().name()
        ))
    )
}

fn save(path: &Path, text: &str) -> Result<(), Failure> {
    write_atomically(path, text.as_bytes()).map_err(|error| failed(path, error))
}

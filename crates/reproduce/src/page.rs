//! What is written: one page, the tables as CSV, and everything as JSON.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use dpsgd::Error;
use dpsgd_kernels::Level;
use dpsgd_report::{html, json as shown};
use dpsgd_train::directory::write_atomically;
use serde_json::{Map, Value, json};

use crate::panels::GridSize;
use crate::section::Section;
use crate::{Part, error};

/// Writes the parts into a directory, beside those that were written there before; returns the path of the
/// page.
pub fn write(out: &Path, fresh: Vec<(Part, Section)>, effort: &GridSize) -> Result<PathBuf, Error> {
    let place = out.join("sections");
    std::fs::create_dir_all(&place).map_err(error::io(&place))?;
    for (part, section) in &fresh {
        let path = place.join(format!("{}.json", part.name()));
        save(&path, &serde_json::to_string(section).map_err(error::io(&path))?)?;
    }
    let mut body = head(effort);
    let mut all = Map::new();
    for part in Part::ALL {
        let path = place.join(format!("{}.json", part.name()));
        let Some(section) = saved(&path, part)? else { continue };
        body.push_str(&html::section(&section.title, &section.html));
        for (file, text) in &section.csv {
            save(&out.join(file), text)?;
        }
        all.insert(part.name().to_string(), section.json);
    }
    let about = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "quick": effort.quick,
        "seed": effort.seed,
        "instructions": Level::best().name(),
        "data": effort.data.iter().map(|data| data.name()).collect::<Vec<_>>(),
    });
    let everything = json!({ "about": about, "sections": Value::Object(all) });
    save(&out.join("reproduce.json"), &shown::line(&everything))?;
    let page = out.join("reproduce.html");
    let footer = "Every ε is the certified upper end of an interval, rounded up.";
    save(&page, &html::page("The paper, reproduced", &body, footer))?;
    Ok(page)
}

/// A part that was written now or before.
fn saved(path: &Path, part: Part) -> Result<Option<Section>, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|why| {
            error::file(path, format!("{why}; remove it and reproduce {} again", part.name()))
        }),
        Err(missing) if missing.kind() == ErrorKind::NotFound => Ok(None),
        Err(failed) => Err(error::io(path)(failed)),
    }
}

fn head(effort: &GridSize) -> String {
    let lead = "Every table and figure of “Generalizing DP-SGD with Shuffling and Batch Clipping”, computed \
        by dpsgd, beside what the paper prints.";
    let quick = if effort.quick {
        "<span class=\"badge warning\">small version: too few samples and epochs to compare \
         accuracies</span>\n"
    } else {
        ""
    };
    let about = format!(
        "dpsgd {}, seed {}, {} kernels. The numbers are in the CSV files and in reproduce.json beside this \
         page.",
        env!("CARGO_PKG_VERSION"),
        effort.seed,
        Level::best().name()
    );
    format!(
        "<header>\n<h1>The paper, reproduced</h1>\n<p class=\"lead\">{}</p>\n{quick}{}</header>\n",
        html::escape(lead),
        html::paragraph(&about)
    )
}

fn save(path: &Path, text: &str) -> Result<(), Error> {
    write_atomically(path, text.as_bytes()).map_err(error::io(path))
}

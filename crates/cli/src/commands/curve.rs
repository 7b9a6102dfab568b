//! `dpsgd curve`: the trade-off functions of one or more runs as a picture.

use std::path::{Path, PathBuf};

use clap::Args;
use dpsgd::report::chart;
use dpsgd::report::curve::{CurveRun, Tradeoff};
use dpsgd::train::directory::{CONFIG, write_atomically};
use dpsgd::{RawSettings, Settings};

use crate::failure::{Failure, at};
use crate::print;

/// The flags of `dpsgd curve`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  dpsgd curve --out curve.svg
  dpsgd curve --groups 256 --epochs 30 --sigma 1 --out curve.png
  dpsgd curve --config weak.toml --config strong.toml --out both.svg")]
pub struct CurveCommand {
    /// Where to write the picture; the ending .svg or .png decides the format
    #[arg(long, value_name = "FILE", help_heading = "Input and output")]
    out: PathBuf,
    /// Settings from a TOML file; repeated, the runs are overlaid
    #[arg(long, value_name = "FILE.toml", help_heading = "Input and output")]
    config: Vec<PathBuf>,
    #[command(flatten)]
    settings: RawSettings,
}

/// A picture's format.
#[derive(Clone, Copy)]
enum Format {
    Svg,
    Png,
}

/// Pixels per unit of the SVG.
const SCALE: f32 = 2.0;

impl CurveCommand {
    /// Draws and writes the picture.
    pub fn run(self) -> Result<(), Failure> {
        let ending = self.out.extension().and_then(|ending| ending.to_str()).map(str::to_lowercase);
        let format = match ending.as_deref() {
            Some("svg") => Format::Svg,
            Some("png") => Format::Png,
            _ => {
                let path = self.out.display();
                return Err(Failure::Input(format!("{path}: the file must end in .svg or .png")));
            }
        };
        let runs = self.runs()?;
        let drawn: Vec<CurveRun<'_>> = runs
            .iter()
            .map(|(name, settings)| CurveRun {
                name: name.clone(),
                mechanism: &settings.mechanism,
                question: settings.question,
                alphas: &settings.alphas,
            })
            .collect();
        let svg = Tradeoff::of(&drawn)?.svg();
        let bytes = match format {
            Format::Svg => svg.into_bytes(),
            Format::Png => chart::png(&svg, SCALE).map_err(|error| Failure::Other(error.to_string()))?,
        };
        write_atomically(&self.out, &bytes).map_err(at(&self.out))?;
        let what = match runs.len() {
            1 => "the trade-off functions of the run".to_string(),
            n => format!("the trade-off functions of {n} runs"),
        };
        print(&format!("wrote {what} to {}\n", self.out.display()))
    }

    fn runs(&self) -> Result<Vec<(String, Settings)>, Failure> {
        if self.config.is_empty() {
            return Ok(vec![(String::new(), self.settings.with_file(None)?.resolve()?)]);
        }
        let run = |path: &PathBuf| Ok((name_of(path), self.settings.with_file(Some(path))?.resolve()?));
        self.config.iter().map(run).collect()
    }
}

/// What a picture calls the run of a file: its name, or that of its run directory, because there every file is
/// `config.toml`.
fn name_of(path: &Path) -> String {
    let named = match path.file_name() {
        Some(file) if file == CONFIG => path.parent().and_then(Path::file_name).or(path.file_stem()),
        _ => path.file_stem(),
    };
    named.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_told_apart() {
        let names = ["runs/a/config.toml", "runs/b/config.toml", "weak.toml", "config.toml"];
        let names = names.map(|path| name_of(Path::new(path)));
        assert_eq!(names, ["a", "b", "weak", "config"]);
    }
}

//! `dpsgd serve`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use dpsgd_federated::serving::Serving;
use serde_json::json;

use crate::board::ServeBoard;
use crate::failure::{Failure, at};
use crate::print;
use crate::terminal::stop_politely;

/// The flags of `dpsgd serve`.
#[derive(Args)]
#[command(after_help = "\
It runs until Ctrl-C. Killed and started again at any moment, it resumes: every update is folded \
exactly once. A second coordinator of the same run takes over, and the first one stops.

The folder `coordinator` beside the file holds how it stands (dpsgd ui shows that as a page) and, at the end, \
report.html and summary.json.")]
pub struct ServeCommand {
    /// server.toml, as dpsgd federation init wrote it
    file: PathBuf,
    /// Write the global model here at the end [default: global.model beside the file]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Do not measure the model on the public test set
    #[arg(long)]
    no_test: bool,
    /// End when no update has come for so long, once there was one
    #[arg(long, value_name = "SECONDS", value_parser = super::seconds)]
    stop_when_idle: Option<Duration>,
    /// Print one JSON object at the end instead of a few lines
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

impl ServeCommand {
    /// Coordinates until it is told to stop.
    pub fn run(self) -> Result<(), Failure> {
        let mut serving = Serving::open(&self.file)?;
        (serving.tested, serving.idle) = (!self.no_test, self.stop_when_idle);
        stop_politely();
        let mut board = ServeBoard::new(self.quiet);
        let served = serving.run(&mut board)?;
        board.end();
        let Some(served) = served else { return Ok(()) };
        let beside = || self.file.parent().unwrap_or(Path::new("")).join("global.model");
        let out = self.out.clone().unwrap_or_else(beside);
        std::fs::write(&out, served.model()).map_err(at(&out))?;
        if self.json {
            let mut summary = served.status.summary();
            summary["model"] = json!(out.display().to_string());
            return print(&dpsgd::report::json::line(&summary));
        }
        let mut text = served.status.statement();
        for path in served.report.iter().chain([&out]) {
            text.push_str(&format!("wrote {}\n", path.display()));
        }
        print(&text)
    }
}

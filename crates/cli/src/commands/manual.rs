//! `dpsgd completions` and `dpsgd man`: generated from the flags themselves.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::{Failure, at};
use crate::print;

/// The flags of `dpsgd completions`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  dpsgd completions bash > ~/.local/share/bash-completion/completions/dpsgd
  dpsgd completions zsh > ~/.zfunc/_dpsgd
  dpsgd completions fish > ~/.config/fish/completions/dpsgd.fish")]
pub struct CompletionsCommand {
    /// The shell
    shell: Shell,
}

impl CompletionsCommand {
    /// Prints the script.
    pub fn run(self, mut command: Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "dpsgd", &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}

/// The flags of `dpsgd man`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  dpsgd man | man -l -
  dpsgd man --out ~/.local/share/man/man1")]
pub struct ManCommand {
    /// Write one page for each command into this directory, instead of the first to standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl ManCommand {
    /// Writes the pages.
    pub fn run(self, command: Command) -> Result<(), Failure> {
        match self.out {
            Some(out) => {
                std::fs::create_dir_all(&out).map_err(at(&out))?;
                clap_mangen::generate_to(command, &out).map_err(at(&out))
            }
            None => {
                let mut page = Vec::new();
                let rendered = clap_mangen::Man::new(command).render(&mut page);
                rendered.map_err(|error| Failure::Other(error.to_string()))?;
                print(&String::from_utf8_lossy(&page))
            }
        }
    }
}

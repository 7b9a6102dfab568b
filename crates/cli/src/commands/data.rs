//! `dpsgd data`: the data sets that are known by name.

use std::fmt::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use dpsgd::data::{Known, get, known};

use crate::failure::Failure;
use crate::print;
use crate::terminal::tell;

/// The flags of `dpsgd data`.
#[derive(Args)]
pub struct DataCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Fetch data sets and check them against their published checksums
    #[command(after_help = "\
Examples:
  dpsgd data get fashion-mnist
  dpsgd data get cifar10 fashion-mnist adult --into data")]
    Get {
        /// fashion-mnist, cifar10, adult (mnist is shipped)
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Where to put them [default: $DPSGD_DATA, or data]
        #[arg(long, value_name = "DIR")]
        into: Option<PathBuf>,
    },
    /// List the data sets and where they are
    List {
        /// Where to look [default: $DPSGD_DATA, data here and above]
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
    },
}

/// What a data set is, in a line.
fn described(known: Known) -> &'static str {
    match known {
        Known::Mnist => "60000 + 10000 digits, 28 × 28, 10 classes",
        Known::FashionMnist => "60000 + 10000 pieces of clothing, 28 × 28, 10 classes",
        Known::Cifar10 => "50000 + 10000 colour images, 32 × 32, 10 classes",
        Known::Adult => "32561 + 16281 persons, 14 columns, 2 classes",
    }
}

impl DataCommand {
    /// Fetches or lists.
    pub fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::Get { names, into } => {
                // All names are checked before the first is fetched.
                let wanted = names.iter().map(|name| name.parse()).collect::<Result<Vec<Known>, _>>()?;
                let into = into.unwrap_or_else(get::default_directory);
                for known in wanted {
                    match get::get(known, &into, &mut |line| tell(line))? {
                        get::FetchOutcome::Present(path) => {
                            print(&format!("{known} is in {} and correct\n", path.display()))?;
                        }
                        get::FetchOutcome::Fetched(path) => {
                            print(&format!("{known} is now in {}, checked\n", path.display()))?;
                        }
                    }
                }
                Ok(())
            }
            Action::List { data_dir } => {
                let mut text = String::new();
                for known in Known::ALL {
                    let place = match known::find(known, data_dir.as_deref()) {
                        Ok(path) => format!("in {}", path.canonicalize().unwrap_or(path).display()),
                        Err(_) => format!("not here: dpsgd data get {known}"),
                    };
                    let _ = writeln!(text, "{:<14} {:<55} {place}", known.name(), described(known));
                }
                print(&text)
            }
        }
    }
}

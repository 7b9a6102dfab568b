//! The commands of the README, typed as a new user would, on a run that is short.

mod folder;

use std::path::Path;
use std::process::Command;

use folder::Folder;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const RUN: &str = "runs/mnist-lenet5-1";

/// The indented lines that begin with `dpsgd`, without their comments.
fn commands() -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(ROOT).join("README.md")).expect("the README");
    let lines = text.lines().filter_map(|line| line.strip_prefix("    dpsgd "));
    lines.map(|line| line.split(" #").next().unwrap_or(line).trim().to_string()).collect()
}

fn dpsgd(folder: &Folder, words: &[&str]) -> (Option<i32>, String) {
    let mut command: Command = folder.command(words);
    command.env("DPSGD_DATA", Path::new(ROOT).join("data"));
    let output = command.output().expect("the command runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// What a shell makes of `directory/*`.
fn expanded(folder: &Folder, word: &str) -> Vec<String> {
    let Some(directory) = word.strip_suffix("/*") else { return vec![word.to_string()] };
    let entries = std::fs::read_dir(folder.0.join(directory)).expect("the directory");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<String> =
        entries.map(|entry| format!("{directory}/{}", name(entry).to_string_lossy())).collect();
    names.sort();
    names
}

#[test]
fn every_command_of_the_readme_runs() {
    let folder = Folder::new("readme");
    std::fs::create_dir(folder.0.join("recipes")).expect("a directory");
    for recipe in std::fs::read_dir(Path::new(ROOT).join("recipes")).expect("the recipes") {
        let recipe = recipe.expect("a recipe");
        std::fs::copy(recipe.path(), folder.0.join("recipes").join(recipe.file_name())).expect("a copy");
    }
    let small = ["train", "--net", "logistic", "--epochs", "1", "--sigma", "2", "--quiet", "--out", RUN];
    assert_eq!(dpsgd(&folder, &small).0, Some(0));
    folder.table();
    for name in ["new.csv", "other.csv"] {
        std::fs::copy(folder.path("public.csv"), folder.path(name)).expect("a copy");
    }
    let people = ["train", "--config", "people.toml", "--sigma", "2", "--quiet", "--out"];
    folder.text(&[&people[..], &["runs/people-logistic-1"]].concat());
    let commands = commands();
    assert!(commands.len() > 25, "{commands:?}");
    for line in &commands {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let mut expected = Some(0);
        match words[..2.min(words.len())] {
            // The settings are what can be wrong; `account` reads the same ones.
            ["train", ..] => words[0] = "account",
            // Downloads.
            ["data", "get"] => continue,
            // The run is finished.
            ["resume", _] => expected = Some(2),
            ["reproduce", part] if part.starts_with("table1") => words.extend(["--quick", "--quiet"]),
            ["reproduce", _] => words.extend(["--only", "nothing", "--quiet"]),
            ["federate", _] => words.push("--quiet"),
            ["sweep", _] => {
                words.extend(["--net", "logistic", "--epochs", "1", "--groups", "2048", "--quiet"])
            }
            ["audit", "mechanism"] => words.extend(["--trials", "200"]),
            ["audit", "training"] => words.extend(["--canaries", "100", "--quiet"]),
            _ => {}
        }
        let words: Vec<String> = words.iter().flat_map(|word| expanded(&folder, word)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, text) = dpsgd(&folder, &words);
        assert_eq!(code, expected, "dpsgd {line}\n{text}");
    }
}

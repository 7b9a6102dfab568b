//! What people came to do: the scripts of `docs/try`, each in an empty directory.

mod folder;

use std::path::Path;
use std::process::Command;

use folder::Folder;

fn runs(name: &str) {
    let folder = Folder::new(&format!("try-{name}"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("bash")
        .arg(root.join(format!("docs/try/{name}.sh")))
        .current_dir(&folder.0)
        .env("DPSGD", env!("CARGO_BIN_EXE_dpsgd"))
        .env("DPSGD_LEDGER", folder.ledger())
        .output()
        .expect("bash runs");
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {said}\n{error}");
}

#[test]
fn a_hospital_with_a_table() {
    runs("hospital");
}

#[test]
fn a_researcher_who_compares() {
    runs("researcher");
}

#[test]
fn an_officer_who_signs() {
    runs("officer");
}

#[test]
fn a_laptop_that_is_closed() {
    runs("laptop");
}

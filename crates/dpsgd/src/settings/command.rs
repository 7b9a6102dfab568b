//! Settings as the flags of a command.

use super::{RawSettings, SettingsError, number};

impl RawSettings {
    /// The settings whose name is `wanted`, as flags; those that only a file can hold are left out.
    pub fn to_flags(&self, wanted: impl Fn(&str) -> bool) -> Result<String, SettingsError> {
        let table = toml::Table::try_from(self).map_err(|error| SettingsError::Toml(error.to_string()))?;
        let plain = |value: &toml::Value| match value {
            toml::Value::String(text) => quoted(text),
            toml::Value::Float(value) => number(*value),
            other => other.to_string(),
        };
        let mut text = String::new();
        for (name, value) in table.iter().filter(|(name, _)| wanted(name)) {
            match value {
                toml::Value::Table(_) => {}
                // `--filter true` would take the value for an argument of its own.
                toml::Value::Boolean(value) => text.push_str(&format!(" --{name}={value}")),
                toml::Value::Array(values)
                    if values.is_empty() || values.iter().any(toml::Value::is_table) => {}
                toml::Value::Array(values) => {
                    let values: Vec<String> = values.iter().map(plain).collect();
                    text.push_str(&format!(" --{name} {}", values.join(",")));
                }
                value => text.push_str(&format!(" --{name} {}", plain(value))),
            }
        }
        Ok(text)
    }
}

/// A word for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_string()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

//! Values that must not be printed.

use std::{collections::BTreeMap, fmt};

pub use broker_secret::Sensitive;

/// A class's secret, its values decoded. `Debug` shows the keys and nothing else.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret {
    values: BTreeMap<String, Sensitive>,
}

impl Secret {
    pub fn get(&self, key: &str) -> Option<&Sensitive> {
        self.values.get(key)
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }
}

impl FromIterator<(String, Sensitive)> for Secret {
    fn from_iter<I: IntoIterator<Item = (String, Sensitive)>>(values: I) -> Self {
        Self { values: values.into_iter().collect() }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_keys_and_no_values() {
        let secret: Secret =
            [("token".to_owned(), Sensitive::new("hunter2"))].into_iter().collect();
        assert_eq!(format!("{secret:?}"), r#"{"token"}"#);
        assert_eq!(format!("{:?}", secret.get("token")), "Some([7 hidden bytes])");
    }
}

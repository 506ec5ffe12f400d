//! Values that must not be printed.

use std::{collections::BTreeMap, fmt, ops::Deref};

use bytes::Bytes;

/// Bytes that hide from logs: credentials and user data.
#[derive(Clone, PartialEq, Eq)]
pub struct Sensitive(Bytes);

impl Sensitive {
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// The value as text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl Deref for Sensitive {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Sensitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} hidden bytes]", self.0.len())
    }
}

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

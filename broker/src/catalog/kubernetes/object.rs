//! Objects of the API server as the catalog reads them. Pure.

use kube::core::{DynamicObject, TypeMeta};
use serde_json::Value;

use super::{super::ClassId, Kind};
use crate::catalog::{Class, Secret};

/// `kubectl apply` writes the whole object into it once more, a secret's data too.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A class, or who it is and why it cannot be read.
pub(super) type Read = Result<Class, (ClassId, String)>;

pub(super) fn class(kind: &Kind, plural: &str, object: DynamicObject) -> Read {
    let id = id(kind, &object);
    let read = value(kind, object).and_then(Class::from_object);
    read.map(|class| class.with_plural(plural)).map_err(|why| (id, why))
}

pub(super) fn id(kind: &Kind, object: &DynamicObject) -> ClassId {
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
    ClassId {
        api_version: kind.api_version.clone(),
        kind: kind.kind.clone(),
        namespace: text(&object.metadata.namespace),
        name: text(&object.metadata.name),
    }
}

pub(super) fn secret(object: DynamicObject) -> Result<Secret, String> {
    let kind = Kind { api_version: "v1".into(), kind: "Secret".into() };
    value(&kind, object).and_then(Secret::from_object)
}

/// The object with its type, which items of a list may lack, and without what only the API server and
/// kubectl need.
fn value(kind: &Kind, mut object: DynamicObject) -> Result<Value, String> {
    object.types =
        Some(TypeMeta { api_version: kind.api_version.to_string(), kind: kind.kind.to_string() });
    object.metadata.managed_fields = None;
    if let Some(annotations) = &mut object.metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    serde_json::to_value(object).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_shapes_of_classes_are_read_with_the_plural_that_the_api_server_has() {
        let kind = Kind { api_version: "a.b/v1".into(), kind: "Ox".into() };
        for fields in
            [json!({"spec": {"secretRef": {"name": "s"}}}), json!({"secretRef": {"name": "s"}})]
        {
            let mut object = json!({
                "metadata": {
                    "name": "a", "namespace": "n", "managedFields": [{"manager": "kubectl"}],
                    "annotations": {LAST_APPLIED: "{}"},
                },
            });
            object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let class = class(&kind, "oxen", serde_json::from_value(object).unwrap()).unwrap();
            assert_eq!(class.id.to_string(), "Ox n/a");
            assert_eq!(&*class.plural, "oxen");
            assert_eq!(class.secrets().count(), 1);
            assert!(!class.json.contains("kubectl"), "{}", class.json);
        }
    }
}

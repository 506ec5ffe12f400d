//! A CustomResourceDefinition around the schema of a type, of either shape.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceValidation,
    JSONSchemaProps,
};
use kube_core::schema::StructuralSchemaRewriter;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Value, json};

pub(crate) struct Names {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) short: &'static str,
}

pub(crate) struct Definition {
    pub(crate) names: Names,
    pub(crate) version: &'static str,
    /// Of the whole object, but for what every object has.
    pub(crate) schema: Value,
    pub(crate) columns: Vec<Column>,
}

/// What `kubectl get` shows of an object.
pub(crate) struct Column {
    name: &'static str,
    path: &'static str,
    sort: &'static str,
    /// Only with `-o wide`.
    wide: bool,
}

impl Column {
    pub(crate) fn text(name: &'static str, path: &'static str) -> Self {
        Self { name, path, sort: "string", wide: false }
    }

    pub(crate) fn number(name: &'static str, path: &'static str) -> Self {
        Self { sort: "integer", ..Self::text(name, path) }
    }

    /// Shown as how long ago it was.
    pub(crate) fn date(name: &'static str, path: &'static str) -> Self {
        Self { sort: "date", ..Self::text(name, path) }
    }

    pub(crate) fn wide(self) -> Self {
        Self { wide: true, ..self }
    }
}

impl Definition {
    pub(crate) fn into_crd(self) -> CustomResourceDefinition {
        let Names { group, kind, plural, short } = self.names;
        let schema: JSONSchemaProps =
            serde_json::from_value(self.schema).expect("the schema of a type is a schema");
        let columns = self.columns.iter().map(|column| CustomResourceColumnDefinition {
            name: column.name.to_owned(),
            json_path: column.path.to_owned(),
            type_: column.sort.to_owned(),
            priority: column.wide.then_some(1),
            ..Default::default()
        });
        let mut crd = CustomResourceDefinition {
            spec: CustomResourceDefinitionSpec {
                group: group.to_owned(),
                scope: "Namespaced".to_owned(),
                names: CustomResourceDefinitionNames {
                    kind: kind.to_owned(),
                    list_kind: Some(format!("{kind}List")),
                    plural: plural.to_owned(),
                    singular: Some(kind.to_lowercase()),
                    short_names: Some(vec![short.to_owned()]),
                    ..Default::default()
                },
                versions: vec![CustomResourceDefinitionVersion {
                    name: self.version.to_owned(),
                    served: true,
                    storage: true,
                    schema: Some(CustomResourceValidation { open_api_v3_schema: Some(schema) }),
                    additional_printer_columns: Some(columns.collect()),
                    ..Default::default()
                }],
                ..Default::default()
            },
            ..Default::default()
        };
        crd.metadata.name = Some(format!("{plural}.{group}"));
        crd
    }
}

/// The schema of a type as the API server takes it, at the top of an object: what is not said may be
/// there all the same, since drivers have fields of their own.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let mut schema = strict_schema_of::<T>();
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
    }
    schema
}

/// The same for what nobody but us writes.
pub(crate) fn strict_schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(StructuralSchemaRewriter);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("title");
    }
    schema
}

/// Without defaults, which the API server would write into every object, and formats of Rust.
fn simplify(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.remove("default");
    let of_rust = |format: &Value| format.as_str().is_some_and(|name| name.starts_with("uint"));
    if fields.get("format").is_some_and(of_rust) {
        fields.remove("format");
    }
    for inner in ["items", "additionalProperties"] {
        fields.get_mut(inner).into_iter().for_each(simplify);
    }
    let properties = fields.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(|all| all.values_mut()).for_each(simplify);
}

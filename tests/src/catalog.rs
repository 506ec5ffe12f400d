//! A catalog with more in it than the sample: two more kinds, a second namespace, providers.

use std::sync::Arc;

use broker::catalog::Static;
use broker_proto::v1::ClassRef;

use crate::{API_VERSION, CLASS, KIND};

/// A kind whose classes name a provider each.
pub const SHARED_KIND: &str = "MachineClass";
pub const SHARED_API_VERSION: &str = "machine.sapcloud.io/v1alpha1";
/// A kind that another driver serves.
pub const OTHER_KIND: &str = "OtherMachineClass";
pub const OTHER_API_VERSION: &str = "other.machinebroker.dev/v1";

/// The text of the whole catalog, whose credentials hold `token`.
pub fn catalog_text(token: &str) -> String {
    format!(
        "
apiVersion: {API_VERSION}
kind: {KIND}
metadata: {{name: {CLASS}}}
spec: {{secretRef: {{name: base}}, credentialsSecretRef: {{name: credentials}}}}
---
apiVersion: {API_VERSION}
kind: {KIND}
metadata: {{name: {CLASS}, namespace: team-b}}
spec: {{}}
---
apiVersion: {SHARED_API_VERSION}
kind: {SHARED_KIND}
metadata: {{name: on-aws}}
provider: aws
providerSpec: {{}}
---
apiVersion: {SHARED_API_VERSION}
kind: {SHARED_KIND}
metadata: {{name: on-gcp}}
provider: gcp
providerSpec: {{}}
---
apiVersion: {OTHER_API_VERSION}
kind: {OTHER_KIND}
metadata: {{name: other}}
secretRef: {{name: of-other}}
---
apiVersion: v1
kind: Secret
metadata: {{name: base}}
stringData: {{userData: hello, token: overruled}}
---
apiVersion: v1
kind: Secret
metadata: {{name: credentials}}
stringData: {{token: {token}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: of-other}}
stringData: {{token: foreign}}
---
apiVersion: v1
kind: Secret
metadata: {{name: unreferenced}}
stringData: {{token: nobodys}}
"
    )
}

pub fn catalog() -> Arc<Static> {
    Static::from_yaml(&catalog_text("first")).expect("the catalog is right")
}

/// A class in the namespace `default`.
pub fn class(api_version: &str, kind: &str, name: &str) -> ClassRef {
    ClassRef {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        provider: String::new(),
    }
}

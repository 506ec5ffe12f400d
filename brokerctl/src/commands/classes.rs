//! `brokerctl classes`: what the catalog holds, and who serves it.

use anstyle::AnsiColor;
use broker_proto::v1::{ListClassesRequest, ListedClass};
use serde::Serialize;

use super::{ClassView, Session};
use crate::{
    Failure,
    output::{Look, View},
    table::{self, Cell, Column},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Classes {
    /// Only the classes of this kind
    #[arg(long, default_value = "", hide_default_value = true)]
    kind: String,
}

impl Classes {
    pub(crate) async fn run(
        self,
        Session { broker, output }: &mut Session<'_, '_>,
    ) -> Result<(), Failure> {
        let request = broker.look(ListClassesRequest { kind: self.kind.clone() });
        let answer = broker.registry().list_classes(request).await;
        let answer = answer.map_err(|status| broker.look_failed(&status))?.into_inner();
        for problem in &answer.problems {
            output.remark(format!("problem: {}", table::printable(problem)));
        }
        if answer.classes.is_empty() {
            let of =
                if self.kind.is_empty() { String::new() } else { format!(" of {}", self.kind) };
            output.remark(format!("the catalog of {} holds no class{of}", broker.address()));
        }
        output.print(&ClassList::new(answer.classes, answer.problems))
    }
}

#[derive(Debug, Serialize)]
struct ClassList {
    classes: Vec<Listed>,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    #[serde(flatten)]
    class: ClassView,
    revision: i32,
    /// None: it names no secret.
    secret_revision: Option<i32>,
    served_by: Vec<String>,
    /// Kept so that its machines can be deleted.
    deleted: bool,
}

const COLUMNS: &[Column<Listed>] = &[
    Column::new("KIND", |listed, _| (&listed.class.kind).into()),
    Column::wide("API VERSION", |listed, _| (&listed.class.api_version).into()),
    Column::wide("PROVIDER", |listed, _| (&listed.class.provider).into()),
    Column::new("CLASS", |listed, _| match listed.deleted {
        true => format!("{} (deleted)", listed.class.path()).into(),
        false => listed.class.path().into(),
    }),
    Column::new("REVISION", |listed, _| listed.revision.to_string().into()),
    Column::new("SECRET", |listed, _| {
        listed.secret_revision.map_or(String::new(), |revision| revision.to_string()).into()
    }),
    Column::new("SERVED BY", |listed, _| match listed.served_by.as_slice() {
        [] => Cell::styled("nobody", AnsiColor::Red.on_default()),
        drivers => drivers.join(",").into(),
    }),
];

impl ClassList {
    fn new(classes: Vec<ListedClass>, problems: Vec<String>) -> Self {
        let listed = |listed: ListedClass| Listed {
            class: listed.class.unwrap_or_default().into(),
            revision: listed.revision,
            secret_revision: (listed.secret_revision != 0).then_some(listed.secret_revision),
            served_by: listed.served_by,
            deleted: listed.deleted,
        };
        let mut classes: Vec<_> = classes.into_iter().map(listed).collect();
        classes.sort_by_cached_key(|listed| (listed.class.kind.clone(), listed.class.path()));
        Self { classes, problems }
    }
}

impl View for ClassList {
    fn text(&self, look: Look) -> String {
        table::of(COLUMNS, &self.classes, look)
    }
}

#[cfg(test)]
mod tests {
    use broker_proto::v1::ClassRef;

    use super::*;
    use crate::output::fitting;

    fn list() -> ClassList {
        let class = |kind: &str, name: &str| ClassRef {
            api_version: "example/v1".into(),
            kind: kind.into(),
            name: name.into(),
            ..ClassRef::default()
        };
        let small = ListedClass {
            class: Some(class("SimMachineClass", "small")),
            revision: 3,
            secret_revision: 2,
            served_by: vec!["sim-0".into(), "sim-1".into()],
            deleted: false,
        };
        let test = ListedClass {
            class: Some(class("AWSMachineClass", "test")),
            revision: 1,
            secret_revision: 0,
            served_by: vec![],
            deleted: true,
        };
        ClassList::new(vec![small, test], vec!["classes/a.yaml:3: no name".into()])
    }

    #[test]
    fn classes_are_a_table() {
        let expected = "\
KIND              CLASS                    REVISION   SECRET   SERVED BY
AWSMachineClass   default/test (deleted)   1          <none>   nobody
SimMachineClass   default/small            3          2        sim-0,sim-1
";
        assert_eq!(list().text(fitting::look()), expected);
    }

    #[test]
    fn a_class_that_nobody_serves_is_red() {
        let text = list().text(Look { colour: true, ..fitting::wide() });
        assert!(text.contains("\x1b[31mnobody\x1b[0m"), "{text}");
        assert!(text.contains("example/v1"), "{text}");
    }

    #[test]
    fn classes_are_data() {
        let mut list = list();
        list.classes.truncate(1);
        let expected = "\
classes:
- apiVersion: example/v1
  kind: AWSMachineClass
  namespace: default
  name: test
  revision: 1
  secretRevision: null
  servedBy: []
  deleted: true
problems:
- \"classes/a.yaml:3: no name\"
";
        assert_eq!(fitting::yaml(&list), expected);
    }
}

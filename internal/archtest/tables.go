package archtest

const topFloor = 5

// floors says on which floor a tree of packages is; the longest match counts. A package imports lower floors and its
// own children.
var floors = []struct {
	tree  string
	floor int
}{
	{"cmd/...", topFloor},
	{"tools/...", topFloor},
	{"test/...", topFloor},
	{"bench/...", topFloor},
	{"node/...", 4},
	{"console/...", 4},
	{"controller/...", 3},
	{"frontend/...", 3},
	{"inputhost/...", 3},
	{"outputhost/...", 3},
	{"storehost/...", 3},
	{"client/...", 3},
	{clientTest, topFloor},
	{"metadata/...", 2},
	{"membership/...", 2},
	{"internal/peer/...", 2},
	{"internal/serving/...", 2},
	{"internal/publish/...", 2},
	{"core/...", 1},
	{"wire/...", 1},
	{"api/...", 1},
	{"internal/...", 0},
}

// roles never import each other.
var roles = []string{"controller", "frontend", "inputhost", "outputhost", "storehost"}

// exception lets one import pass that the floors forbid, or one of a sibling in a role. Each has a reason; one that
// nothing needs any more fails the test.
type exception struct {
	from, to string
	reason   string
}

var exceptions = []exception{
	{"core/...", "core/...", "the pure rules are about core's nouns"},
	{"wire/...", "core", "records and frames carry ids and seqs, and their errors are of the catalogue"},
	{"wire/ws", "wire", "the link sends the frames of the codec above it"},
	{"api/columbav1/columbav1connect", "api/columbav1", "generated: the stubs use the messages"},
	{"api/convert", "core", "it is the one place where messages become nouns"},
	{"api/convert", "api/columbav1", "it is the one place where messages become nouns"},
	{"metadata/...", "metadata/...", "each kind of store implements the parent's interface and shares its conformance suite"},
	{"metadata/cassandra", "test/cassandra", "its tests run against a real node"},
	{"metadata/remote", "internal/serving", "its service is served like all others"},
	{"membership/...", "membership/...", "each kind of membership implements the parent's interface and shares its conformance suite"},
	{"controller/...", "controller/catalog", "repair, retirement, operations, quotas and backlogs are about what the controller knows of extents and stores"},
	{"controller/...", "controller/placement", "the load of a store, as the catalog knows it, is what placement goes by"},
	{"cmd/...", "tools/...", "the binary is the commands"},
	{"tools/cli", "tools/...", "the commands run the tools"},
	{"tools/cli", "client/clienttest", "the tests of consuming run the command against the broker in memory"},
	{"test/...", "test/...", "the test suites share their harness"},
	{"test/...", "tools/...", "the test suites use the tools, the history checker above all"},
	{"bench/...", "tools/...", "the benchmarks drive the load generator"},
}

// clientAllowed is what the users' library may import of this module: nothing that drags a server into their builds.
var clientAllowed = []string{
	"client/...", "api/...", "wire/...", "core", "internal/publish", "internal/peer", "internal/backoff", "internal/boundq",
}

// clientTest is the broker for users' tests: all roles in memory. Their tests take a server into their builds, their
// programs do not.
const clientTest = "client/clienttest/..."

// clientBanned must not be reached by the client, not even through another package.
var clientBanned = []string{
	"github.com/cockroachdb/pebble/...", "github.com/cockroachdb/pebble/v2/...", "github.com/gocql/gocql/...", "github.com/hashicorp/serf/...",
	"github.com/spf13/cobra/...", "github.com/prometheus/client_golang/...", "go.opentelemetry.io/otel/sdk/...",
}

// fence keeps a library of others where it can be replaced.
type fence struct {
	library string
	allowed []string
	reason  string
}

var fences = []fence{
	{"github.com/gocql/gocql/...", []string{"metadata/cassandra/...", "test/cassandra/..."}, "its successor must be able to replace it in one place"},
	{"github.com/cockroachdb/pebble/...", []string{"metadata/pebble/...", "storehost/extentlog/...", "internal/walfs/..."}, "the engine is behind metadata.Store and extentlog.Log"},
	{"github.com/hashicorp/serf/...", []string{"membership/gossip/..."}, "gossip is behind membership.Monitor"},
	{"github.com/hashicorp/memberlist/...", []string{"membership/gossip/..."}, "gossip is behind membership.Monitor"},
	{"github.com/gorilla/websocket/...", []string{"wire/ws/..."}, "websockets are behind ws.Conn"},
	{"github.com/spf13/cobra/...", []string{"cmd/...", "tools/..."}, "commands are not part of the server"},
	{"github.com/spf13/pflag/...", []string{"cmd/...", "tools/...", "node/..."}, "flags are read in one place"},
	{"go.yaml.in/yaml/v3/...", []string{"node/...", "tools/..."}, "configuration is read in one place"},
	{"github.com/prometheus/client_golang/prometheus/promhttp/...", []string{"node/..."}, "one process has one metrics page"},
	{"go.opentelemetry.io/otel/sdk/...", []string{"node/..."}, "roles know the API, the process chooses the SDK"},
	{"go.opentelemetry.io/otel/exporters/...", []string{"node/..."}, "roles know the API, the process chooses the SDK"},
	{"github.com/stretchr/testify/...", nil, "tests use the standard library and go-cmp"},
	{"github.com/golang/mock/...", nil, "fakes are written by hand"},
	{"go.uber.org/mock/...", nil, "fakes are written by hand"},
	{"github.com/spf13/viper/...", nil, "configuration is read in node"},
}

// badNames say nothing about what a package owns.
var badNames = []string{"common", "util", "utils", "helper", "helpers", "types", "misc", "manager", "impl", "pkg", "shared", "base"}

const maxLines = 800 // of a file

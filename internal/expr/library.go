package expr

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"math/big"
	"strconv"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"k8s.io/apiserver/pkg/cel/library"
)

// maxRange is the longest list that lists.range makes.
const maxRange = 10_000

// baseEnv has the functions that all environments share: those of Kubernetes' own CEL, those of cel-go's extensions, and
// ours. Unlike in Kubernetes, a list or map may be written with values of several types, because templates need that.
var baseEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.EnableIdentifierEscapeSyntax(),
		cel.ParserExpressionSizeLimit(16*1024),
		cel.ParserRecursionLimit(100),
		cel.OptionalTypes(),
		cel.CostEstimatorOptions(checker.PresenceTestHasCost(false)),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
		library.URLs(),
		library.Regex(),
		library.Quantity(),
		library.IP(),
		library.CIDR(),
		library.Format(),
		library.SemverLib(library.SemverVersion(1)),
		library.Lists(library.ListsVersion(1)),
		ext.Strings(ext.StringsVersion(4)),
		ext.Lists(ext.ListsVersion(3), ext.ListsMaxRangeSize(maxRange)),
		ext.Sets(),
		ext.Math(),
		ext.Encoders(),
		ext.Bindings(),
		ext.TwoVarComprehensions(),
		cel.CostEstimatorOptions(checker.OverloadCostEstimate("lists_range", rangeCost)),
		ownFunctions(),
	)
})

func ownFunctions() cel.EnvOption {
	t := cel.TypeParamType("T")
	options := []cel.EnvOption{
		// The type of omit() is whatever the other branch of a condition has.
		cel.Function("omit", cel.Overload("omit", []*cel.Type{}, t,
			cel.FunctionBinding(func(...ref.Val) ref.Val { return omitValue{} }))),
		cel.Function("json", cel.Overload("json_dyn", []*cel.Type{cel.DynType}, cel.StringType, cel.UnaryBinding(marshal))),
		text("hash.sha256", func(s string) string {
			sum := sha256.Sum256([]byte(s))
			return hex.EncodeToString(sum[:])
		}),
		text("hash.fnv", func(s string) string {
			h := fnv.New32a()
			_, _ = h.Write([]byte(s))
			return strconv.FormatUint(uint64(h.Sum32()), 16)
		}),
		random("random.string", lowerLetters+digits),
		random("random.hex", digits+"abcdef"),
		random("random.password", lowerLetters+upperLetters+digits+"-_.~"),
	}
	return cel.Lib(functions(options))
}

// functions is a library without options for programs.
type functions []cel.EnvOption

func (f functions) CompileOptions() []cel.EnvOption     { return f }
func (f functions) ProgramOptions() []cel.ProgramOption { return nil }

func text(name string, f func(string) string) cel.EnvOption {
	overload := strings.ReplaceAll(name, ".", "_") + "_string"
	return cel.Function(name, cel.Overload(overload, []*cel.Type{cel.StringType}, cel.StringType,
		cel.UnaryBinding(func(v ref.Val) ref.Val {
			s, ok := v.(types.String)
			if !ok {
				return types.MaybeNoSuchOverloadErr(v)
			}
			return types.String(f(string(s)))
		})))
}

// marshal writes a value as JSON, with sorted keys.
func marshal(v ref.Val) ref.Val {
	plain, err := toJSON(v)
	if err != nil {
		return types.WrapErr(err)
	}
	if IsOmit(plain) {
		return types.NewErr("json(…) of a value that is left out")
	}
	data, err := json.Marshal(plain)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.String(data)
}

const (
	lowerLetters = "abcdefghijklmnopqrstuvwxyz"
	upperLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits       = "0123456789"
	// maxRandom is the longest text that a function of random makes.
	maxRandom = 1024
)

// randomPrefix begins the names of all functions that yield something else every time.
const randomPrefix = "random."

func random(name, alphabet string) cel.EnvOption {
	overload := strings.ReplaceAll(name, ".", "_") + "_int"
	return cel.Function(name, cel.Overload(overload, []*cel.Type{cel.IntType}, cel.StringType,
		cel.UnaryBinding(func(v ref.Val) ref.Val {
			n, ok := v.(types.Int)
			if !ok {
				return types.MaybeNoSuchOverloadErr(v)
			}
			if n < 1 || n > maxRandom {
				return types.NewErr("%s: the length must be from 1 to %d", name, maxRandom)
			}
			out := make([]byte, n)
			for i := range out {
				// A letter out of the alphabet without bias.
				k, err := rand.Int(rand.Reader, big.NewInt(int64(len(alphabet))))
				if err != nil {
					return types.WrapErr(err)
				}
				out[i] = alphabet[k.Int64()]
			}
			return types.String(out)
		})))
}

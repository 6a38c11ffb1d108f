package node

import "slices"

// buildRoles makes the roles that the configuration asks for, in the order in which they start: what others depend on first.
func (n *Node) buildRoles(res *resources) ([]role, error) {
	var out []role
	for _, name := range Roles {
		if !slices.Contains(n.cfg.Roles, name) {
			continue
		}
		r, err := n.buildRole(name, res)
		if err != nil {
			return nil, err
		}
		if r != nil {
			out = append(out, r)
		}
	}
	return out, nil
}

func (n *Node) buildRole(name string, res *resources) (role, error) {
	return nil, nil
}

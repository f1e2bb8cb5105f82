package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/ipamplugin"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
	"calico-cni/pkg/workload"
)

// recordBatch is how many records are looked for, and deleted, at once. An etcd
// server takes 128 operations in one transaction.
const recordBatch = 100

// recordQuestion asks for records that may be stale.
type recordQuestion struct {
	// about is the container or pod, for messages.
	about string
	query datastore.Query
	// stale tells which records of the answer are.
	stale func(*model.WorkloadEndpoint) bool
}

// collectRecords deletes the records of containers that are gone, many at once.
func (c *collection) collectRecords(ctx context.Context, store datastore.Store, owned []dataplane.Found) {
	questions := c.recordQuestions(c.staleWorkloads(ctx, store, owned))
	for batch := range slices.Chunk(questions, recordBatch) {
		c.deleteRecords(ctx, batch)
	}
}

// staleWorkloads are the workloads whose records may be stale: those that hold
// stale addresses, and those that an interface names. A container may have been
// a pod's or none.
func (c *collection) staleWorkloads(ctx context.Context, store datastore.Store, owned []dataplane.Found) []workload.Identity {
	valid := map[string]bool{}
	for _, attachment := range c.valid {
		valid[attachment.ContainerID] = true
	}
	var stale []workload.Identity
	known := map[workload.Identity]bool{}
	add := func(containerID, namespace, pod string) {
		id := workload.NewIdentity(c.ID.Node, workload.Attachment{Network: c.Conf.Name, ContainerID: containerID},
			workload.Args{PodName: pod, PodNamespace: namespace}, c.Conf.LabelNamespace())
		if !valid[containerID] && !known[id] {
			known[id] = true
			stale = append(stale, id)
		}
	}
	for _, holder := range c.staleHolders(ctx, store) {
		containerID := strings.TrimPrefix(holder.HandleID, c.Conf.Name+".")
		add(containerID, "", "")
		for _, owner := range holder.Owners {
			add(containerID, owner["namespace"], owner["pod"])
		}
	}
	for _, found := range owned {
		if found.Owner.InNetwork(c.Conf.Name) {
			add(found.Owner.ContainerID(), "", "")
		}
	}
	return stale
}

// staleHolders finds the containers that hold stale addresses.
func (c *collection) staleHolders(ctx context.Context, store datastore.Store) []ipam.StaleContainer {
	if c.Conf.IPAM.Type != netconf.IPAMCalico {
		return nil
	}
	notes, err := ipamplugin.Notes(c.plugin.NotesDirectory, c.Conf.Name)
	if err != nil {
		c.Log.Warn("the attachment notes cannot be read", "error", err)
	}
	allocator := ipam.New(store, ipam.Options{Now: c.Now, Logger: c.Log})
	holders, err := allocator.StaleContainers(ctx, ipamplugin.Stale(c.Conf.Name, c.ID.Node, c.valid, notes, c.Now()))
	c.note(err)
	return holders
}

// recordQuestions asks for the record of each pod, and for those of all
// containers outside Kubernetes at once.
func (c *collection) recordQuestions(stale []workload.Identity) []recordQuestion {
	var questions []recordQuestion
	containers := map[string]bool{}
	for _, id := range stale {
		prefix, err := id.EndpointPrefix()
		switch {
		case !id.IsKubernetes():
			containers[id.Attachment.ContainerID] = true
		case err == nil: // else no record can have such a name
			questions = append(questions, recordQuestion{
				about: "pod " + id.Namespace + "/" + id.Pod, query: endpointsNamed(id.Namespace, prefix),
				stale: func(endpoint *model.WorkloadEndpoint) bool {
					return id.SameWorkload(endpoint.Metadata.Name) && endpoint.Spec.ContainerID == id.Attachment.ContainerID
				},
			})
		}
	}
	if c.Store.Transactional() { // the Kubernetes datastore has no others
		question, err := c.containerQuestion(containers)
		if err != nil {
			c.note(err)
			return questions
		}
		questions = append(questions, question)
	}
	return questions
}

func endpointsNamed(namespace, prefix string) datastore.Query {
	return datastore.ListResources{Kind: model.KindWorkloadEndpoint, Namespace: namespace, NamePrefix: prefix}
}

// containerQuestion asks for the records of the host's containers outside
// Kubernetes. Those are stale that name a stale container, and those that name
// this network alone and no valid container: there DEL frees the addresses
// first (network plugin contract 6.5), so if it was killed then and the
// namespace is gone, nothing but the record itself tells of the container.
func (c *collection) containerQuestion(stale map[string]bool) (recordQuestion, error) {
	own := workload.NewIdentity(c.ID.Node, workload.Attachment{}, workload.Args{}, c.Conf.LabelNamespace())
	prefix, err := own.EndpointPrefix()
	if err != nil {
		return recordQuestion{}, err
	}
	return recordQuestion{
		about: "containers outside Kubernetes", query: endpointsNamed(own.Namespace, prefix),
		stale: func(endpoint *model.WorkloadEndpoint) bool {
			node, orchestrator, container, _, err := workload.SplitEndpointName(endpoint.Metadata.Name)
			if err != nil || node != own.Node || orchestrator != own.Orchestrator || container != endpoint.Spec.ContainerID {
				return false
			}
			return stale[container] || slices.Equal(endpoint.Spec.Profiles, []string{c.Conf.Name}) && !c.validContainer(container)
		},
	}, nil
}

func (c *collection) validContainer(containerID string) bool {
	return slices.ContainsFunc(c.valid, func(v types.GCAttachment) bool { return v.ContainerID == containerID })
}

// deleteRecords deletes the stale records among the answers to questions. What
// someone else changed meanwhile is looked at again: it may be another
// sandbox's by then.
func (c *collection) deleteRecords(ctx context.Context, questions []recordQuestion) {
	failed := map[model.Key]bool{}
	var lost error
	for range recordTries {
		step, err := c.staleRecords(ctx, questions)
		if err != nil {
			c.divideQuestions(ctx, questions, err)
			return
		}
		step = slices.DeleteFunc(step, func(m datastore.Mutation) bool { return failed[m.Key] })
		lost = nil
		for part := range slices.Chunk(step, recordBatch) {
			if err := c.removeRecords(ctx, part, failed); err != nil {
				lost = err
			}
		}
		if lost == nil {
			return
		}
	}
	c.note(cnierr.New(cnierr.TryAgainLater, "deleting stale endpoint records, tried %d times: %w; another writer keeps changing it", recordTries, lost))
}

// divideQuestions asks halves of questions that could not be answered together:
// one must not keep the others.
func (c *collection) divideQuestions(ctx context.Context, questions []recordQuestion, err error) {
	if len(questions) == 1 || ctx.Err() != nil {
		for _, question := range questions {
			c.fail("looking for the endpoint records of", question.about, err)
		}
		return
	}
	for half := range slices.Chunk(questions, (len(questions)+1)/2) {
		c.deleteRecords(ctx, half)
	}
}

// staleRecords reads what questions ask, and returns what is to be deleted.
func (c *collection) staleRecords(ctx context.Context, questions []recordQuestion) (datastore.Step, error) {
	queries := make([]datastore.Query, len(questions))
	for i, question := range questions {
		queries[i] = question.query
	}
	answers, err := c.Store.Read(ctx, queries...)
	if err != nil {
		return nil, err
	}
	var step datastore.Step
	seen := map[model.Key]bool{}
	for i, answer := range answers {
		for _, entry := range answer.Entries {
			endpoint, ok := entry.Value.(*model.WorkloadEndpoint)
			if ok && !seen[entry.Key] && questions[i].stale(endpoint) {
				seen[entry.Key] = true
				step = append(step, datastore.Remove(entry.Key, entry.Revision))
			}
		}
	}
	return step, nil
}

// removeRecords deletes records together, and those that cannot be in halves,
// until those that fail stand alone. It returns the error of a race that was
// lost, or of a write whose outcome is unknown: look again.
func (c *collection) removeRecords(ctx context.Context, step datastore.Step, failed map[model.Key]bool) (lost error) {
	_, err := c.Store.Write(ctx, step)
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil && lostRace(err):
		return err
	case len(step) == 1 || ctx.Err() != nil:
		for _, mutation := range step {
			failed[mutation.Key] = true
			c.fail("deleting", mutation.Key.String(), err)
		}
		return nil
	}
	for half := range slices.Chunk(step, (len(step)+1)/2) {
		if err := c.removeRecords(ctx, half, failed); err != nil {
			lost = err
		}
	}
	return lost
}

func lostRace(err error) bool {
	return errors.Is(err, datastore.ErrConflict) || errors.Is(err, datastore.ErrNotFound) ||
		datastore.ReasonOf(err) == datastore.OutcomeUnknown
}

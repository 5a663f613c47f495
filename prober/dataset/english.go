package dataset

import "strings"

func lines(s string) []string {
	out := strings.Split(strings.TrimSpace(s), "\n")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

// english returns the English phrases. They are our own.
func english() phrases {
	return phrases{
		separator: " ", endOfNote: ".",
		notesLead: "Use these notes where they help, and leave out what does not belong to the question:",
		topics: lines(`
			how a heat pump warms a house
			why bread rises
			the way tides follow the moon
			how a bicycle stays upright
			choosing a database index
			how vaccines train the body
			planning a small vegetable garden
			why the sky turns red at dusk
			how a lock on a canal lifts a boat
			backing up family photos
			the rules of compound interest
			how noise travels through walls
			writing a clear incident report
			how a suspension bridge carries load
			packing for a week in the mountains
			why batteries lose capacity
			the life of a honey bee colony
			how search engines rank pages
			making a good cup of coffee
			repairing a leaking tap
			how a jury reaches a verdict
			the causes of coastal erosion
			tuning a guitar by ear
			how satellites keep their orbit
			reading a weather map
			negotiating a rental contract
			how glass is made from sand
			keeping a sourdough starter alive
			the history of the printing press
			how a message queue absorbs load
			learning to swim as an adult
			why ships float and stones sink
			sorting household waste
			how a camera measures light
			the migration of arctic terns
			caring for a wooden cutting board
			how a city plans its bus lines
			what makes a proof convincing
			how memory caches speed up programs
			preparing for a job interview
			the making of a paper map
			how forests recover after a fire
			explaining recursion with everyday objects
			storing solar power overnight
			how an orchestra stays together
			why some metals rust and others do not
			running a fair raffle
			how languages borrow words`),
		audiences: lines(`
			a curious ten year old
			a colleague who is new to the field
			a busy manager
			a neighbour over the fence
			a student before an exam
			a visitor from abroad
			a technical writer
			someone who has read a little about it
			a retired engineer
			a reporter with one column to fill
			a volunteer on their first day
			a friend who doubts it`),
		tasks: lines(`
			Explain {T} to {A} in a few sentences.
			Give {A} three practical tips about {T}.
			What is the most common mistake when people think about {T}? Answer for {A}.
			Write a short introduction to {T} for {A}.
			List the main steps behind {T}, so that {A} can follow.
			Compare two ways of looking at {T} and say which one you would give to {A}.
			Summarise {T} for {A} in plain words.
			Which question about {T} would {A} ask first, and what is the answer?
			Describe {T} with one example from daily life that {A} knows.
			Write a short dialogue in which {A} learns about {T}.
			What changed in the last decades about {T}? Keep it simple for {A}.
			Draft a friendly message to {A} about {T}.
			Name one limit of what we know about {T} and explain it to {A}.
			Tell {A} what to read or try next after hearing about {T}.
			Rewrite the idea behind {T} as a short story for {A}.
			Give a definition, an example and a warning about {T} for {A}.
			Argue for and against spending more effort on {T}, as if {A} had to decide.
			What would surprise {A} most about {T}?
			Turn {T} into a checklist for {A}.
			Answer as an expert: why should {A} care about {T}?`),
		openers: lines(`
			I want to understand {T}. Where do I start?
			Could you help me with a question about {T}?
			Someone asked me about {T} yesterday and I did not know what to say.
			Is it true that {T} is harder than it looks?
			I have to give a short talk about {T}. What matters most?
			What are the two or three words that I need in order to talk about {T}?
			My notes about {T} are a mess. How would you order them?
			How long does it take to get a feeling for {T}?`),
		replies: lines(`
			Gladly. The short version of {T} goes like this.
			Good question. Most people meet {T} without noticing it.
			Let us begin with what is certain about {T}.
			There are many answers; here is the one that I would give to {A}.
			Think of {T} as a chain of small steps.
			That depends on what you want to do with it, but two things always hold.
			Yes and no. It helps to look at one case first.
			Start small and write down what you see.`),
		subjects: lines(`
			The older of the two reports
			A short survey among the members
			The team on the second floor
			One of the early experiments
			The chart on the last page
			A letter from the supplier
			The person who keeps the records
			Every second visitor
			The first version of the plan
			A neighbouring town
			The committee for safety
			The workshop in spring
			A careful reader
			The cheaper of the offers
			The long list of open points
			A retired mechanic
			The measurement from the north side
			The group that started late
			A note in the margin
			The new schedule`),
		acts: lines(`
			mentions a difference of about one tenth
			asks for a second opinion
			puts the cost higher than before
			describes the same effect in other words
			leaves the most important question open
			shows that the simple method is good enough
			warns against changing two things at once
			prefers the slow and steady way
			found no trace of the problem
			suggests to begin with the smallest part
			counts the failed attempts as well
			moved the date by a few days
			agrees with the main idea but not with the details
			keeps a copy of every page
			compares the results with those of last year
			explains the steps in the wrong order
			reports fewer complaints than expected
			wants to repeat the test under other conditions
			uses a rule of thumb from an old handbook
			thanks everybody who took part`),
		circumstances: lines(`
			after the second meeting
			although nobody had asked for it
			in spite of the bad weather
			because the numbers did not add up
			before the end of the month
			when the room was almost empty
			without naming a source
			as the budget allows
			for reasons that are easy to see
			on the condition that it stays simple
			in a tone that invites an answer
			since the last update
			while the others were still waiting
			with a small drawing next to it
			according to the minutes
			under the name of an earlier project
			until somebody proves the opposite
			at the request of the youngest member
			against the advice of the printer
			in less time than planned`),
		longTasks: lines(`
			Write a long, detailed story of at least six hundred words in which {A} discovers {T}. Weave in the following lines.
			Write an essay of at least six hundred words about {T} for {A}, with an example in every paragraph. Refer to these remarks.
			Explain {T} to {A} step by step and as completely as you can, in at least twenty numbered steps. Take these remarks into account.
			Write a conversation of at least thirty lines between two people and {A} about {T}. Let it begin from these facts.
			Write the script of a ten minute talk for {A} about {T}, word for word. Use these sentences somewhere.
			Write a chapter of a handbook about {T} for {A}, with an introduction, five sections and a summary. Comment on these observations.`),
	}
}
